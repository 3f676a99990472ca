"""The images of one prompt: each part is looked at when its rows are needed, and not before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
See = Callable[[Rows], Rows]  # pixels [height, width, 3] -> rows [rows, hidden]


@dataclass(frozen=True)
class View:
    """What one mark in a prompt stands for: frames, and how many rows are made of them."""

    pixels: Sequence[Rows]
    count: int
    arrange: Callable[[Sequence[Rows]], Rows]

    def numbers(self) -> list[int]:
        """A number below zero for each row, which says what is seen and where: texts that show the
        same image have the same ones, before anything was looked at."""
        content = hashlib.blake2b(str([p.shape for p in self.pixels]).encode())
        for pixels in self.pixels:
            content.update(pixels.tobytes())
        seed = content.digest()
        found = []
        for row in range(self.count):
            digest = hashlib.blake2b(row.to_bytes(4, "little"), digest_size=7, key=seed[:64])
            found.append(-1 - int.from_bytes(digest.digest(), "little"))
        return found


class Shown:
    """Gives a session the rows of a prompt's images (:class:`satchel.llm.steps.RowSource`)."""

    def __init__(self, views: Sequence[View], see: See) -> None:
        self._views, self._see = views, see
        self.numbers = [view.numbers() for view in views]
        self._places = {
            number: (view, row)
            for view, numbers in enumerate(self.numbers)
            for row, number in enumerate(numbers)
        }
        self._seen: dict[int, list[Rows]] = {}  # of a view's frames, as far as they were seen
        self._made: dict[int, Rows] = {}

    def make_one(self, numbers: Sequence[int]) -> bool:
        """Look at the next frame that these rows need; False if there is none."""
        for number in numbers:
            view, _ = self._places[number]
            if view in self._made:
                continue
            pixels, seen = self._views[view].pixels, self._seen.setdefault(view, [])
            seen.append(self._see(pixels[len(seen)]))
            if len(seen) == len(pixels):
                self._made[view] = self._views[view].arrange(self._seen.pop(view))
            return True
        return False

    def rows(self, numbers: Sequence[int]) -> Rows:
        """[n, hidden]"""
        while self.make_one(numbers):
            pass
        places = [self._places[number] for number in numbers]
        return np.stack([self._made[view][row] for view, row in places])
