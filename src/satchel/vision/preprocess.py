"""How an image becomes a model's input; the choices travel in the program file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.errors import ProgramFormatError

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


@dataclass(frozen=True)
class Preprocessing:
    """Resize the shorter side, cut the middle out, and normalise each channel.

    >>> Preprocessing(256, (224, 224)).scaled_size(640, 480)
    (341, 256)
    """

    resize: int  # of the shorter side
    crop: tuple[int, int]  # height, width
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        sizes = (self.resize, *self.crop)
        fits = len(self.crop) == 2 and all(isinstance(n, int) and 0 < n <= 1 << 14 for n in sizes)
        fits = fits and len(self.mean) == len(self.std) == 3 and all(s > 0 for s in self.std)
        if not fits or self.interpolation not in INTERPOLATIONS:
            raise ProgramFormatError(f"the preprocessing {asdict(self)} is not possible")

    @staticmethod
    def from_dict(parts: Mapping[str, Any]) -> Preprocessing:
        try:
            return Preprocessing(
                parts["resize"],
                tuple(parts["crop"]),
                tuple(map(float, parts["mean"])),
                tuple(map(float, parts["std"])),
                parts["interpolation"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProgramFormatError(f"the preprocessing is damaged: {error!r}") from None

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def scaled_size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after resizing: the shorter side is exact, the longer cut to whole."""
        short, long = min(width, height), max(width, height)
        new_long = int(self.resize * long / short)
        return (self.resize, new_long) if width <= height else (new_long, self.resize)

    def prepare(self, image: Any) -> NDArray[np.float32]:
        """A Pillow image as ``[1, 3, height, width]``."""
        return _native.prepare_image(
            np.asarray(image.convert("RGB")),
            self.resize,
            self.crop,
            self.mean,
            self.std,
            self.interpolation,
        )
