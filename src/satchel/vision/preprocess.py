"""How an image becomes a model's input; the choices travel in the program file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ProgramFormatError

MOST_RESIZED = 1 << 24  # pixels of a whole picture that is resized before its middle is cut out
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
        from PIL import Image

        resampling = getattr(Image.Resampling, self.interpolation.upper())
        picture = image.convert("RGB")
        size = self.scaled_size(*picture.size)
        height, width = self.crop
        left, top = round((size[0] - width) / 2), round((size[1] - height) / 2)
        start = [left, top]
        long = 0 if size[0] >= size[1] else 1
        if size[0] * size[1] > MOST_RESIZED and start[long] > 0:
            # Of a very long picture, only what will be cut out of its long side.
            ratio = picture.size[long] / size[long]
            box, wanted = [0.0, 0.0, *map(float, picture.size)], list(size)
            wanted[long] = (width, height)[long]
            box[long], box[long + 2] = start[long] * ratio, (start[long] + wanted[long]) * ratio
            picture = picture.resize(tuple(wanted), resampling, box=tuple(box))
            start[long] = 0
        elif size != picture.size:
            picture = picture.resize(size, resampling)
        # What lies outside of a smaller picture is black.
        picture = picture.crop((*start, start[0] + width, start[1] + height))
        pixels = np.asarray(picture, np.float32) / np.float32(255)
        normal = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float32)
