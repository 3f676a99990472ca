"""The spectrogram of a whole recording, in memory that does not grow with it.

How loud the loudest moment is decides how all others are scaled, so that a recording is read once
before the first window. Short ones are kept then; long ones are read a second time as the windows
move on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from satchel.errors import InputError
from satchel.speech.audio import Recording
from satchel.speech.mel import EDGE, FRAME, STEP, framed_log_mel, scaled

KEPT_FRAMES = 360_000  # an hour, 115 MB
SILENCE = -10.0  # log10 of the least that is told apart
_BEHIND = 3  # frames after the last sample that still see some

Mel = NDArray[np.float32]


class Spectrogram:
    """Frames of a recording, 100 a second, by their numbers."""

    def __init__(self, recording: Recording, mels: int, kept_frames: int = KEPT_FRAMES) -> None:
        self.recording, self.mels = recording, mels
        self.frames = 0
        self.loudest = SILENCE
        parts: list[Mel] | None = []
        for part in self._read():
            self.frames += len(part)
            self.loudest = max(self.loudest, float(part.max(initial=SILENCE)))
            if parts is not None:
                parts.append(part)
                parts = parts if self.frames <= kept_frames else None
        self.frames -= _BEHIND
        if self.frames < 1:
            raise InputError(f"{recording.name} is too short to hear anything", "Record more.")
        self._kept = None if parts is None else np.concatenate(parts)
        self._source: Iterator[Mel] | None = None
        self._first = 0  # the number of the first frame that lies in `_near`
        self._near: Mel = np.zeros((0, mels), np.float32)

    def window(self, first: int, count: int, size: int) -> Mel:
        """Frames first … first + count - 1, filled up with zeros to ``size``."""
        out = np.zeros((size, self.mels), np.float32)
        frames = self._frames(first, min(count, self.frames - first))
        out[: len(frames)] = scaled(frames, self.loudest)
        return out

    def beginning(self, size: int) -> Mel:
        """The first frames, and silence where there are no more."""
        out = np.full((size, self.mels), SILENCE, np.float32)
        frames = self._frames(0, min(size, self.frames + _BEHIND))
        out[: len(frames)] = frames
        return scaled(out, self.loudest)

    def _frames(self, first: int, count: int) -> Mel:
        if self._kept is not None:
            return self._kept[first : first + count]
        if self._source is None or first < self._first:
            self._source, self._first, self._near = self._read(), 0, self._near[:0]
        while self._first + len(self._near) < first + count:
            part = next(self._source, None)
            if part is None:
                break
            drop = min(max(0, first - self._first), len(self._near))
            self._near = np.concatenate([self._near[drop:], part])
            self._first += drop
        return self._near[first - self._first :][:count]

    def _read(self) -> Iterator[Mel]:
        """log10 of the mel spectrum, block by block, and some frames of what follows the end."""
        waiting = np.zeros(0, np.float32)
        samples, begun = 0, False
        for block in self.recording.blocks():
            samples += len(block)
            waiting = np.concatenate([waiting, block])
            if not begun and len(waiting) > EDGE:  # before its beginning it goes backwards
                waiting, begun = np.concatenate([waiting[EDGE:0:-1], waiting]), True
            if begun:
                waiting, part = self._taken(waiting)
                if len(part):
                    yield part
        if not samples:
            raise InputError(f"{self.recording.name} has no sound in it", "Record it again.")
        if not begun:
            waiting = np.concatenate([np.zeros(EDGE, np.float32), waiting])
        # The last frame that counts stands at the last whole step.
        last = samples // STEP + _BEHIND
        silence = np.zeros(last * STEP + 2 * FRAME - samples, np.float32)
        _, part = self._taken(np.concatenate([waiting, silence]))
        yield part[: self._missing(samples, len(waiting)) + _BEHIND]

    def _taken(self, waiting: NDArray[np.float32]) -> tuple[NDArray[np.float32], Mel]:
        part = framed_log_mel(waiting, self.mels)
        return waiting[len(part) * STEP :].copy(), part

    @staticmethod
    def _missing(samples: int, waiting: int) -> int:
        """Frames up to the end that have not been taken yet."""
        taken = (samples + EDGE - waiting) // STEP
        return samples // STEP - taken
