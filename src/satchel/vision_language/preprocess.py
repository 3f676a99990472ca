"""Images as CLIP's processor prepares them, bit by bit; the choices travel in the program file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel.errors import CheckpointError, ProgramFormatError
from satchel.vision_language.shown import View

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_BICUBIC = 3  # Pillow's number
_LARGEST = 1 << 12


@dataclass(frozen=True)
class Frames:
    """What a model sees of an image: tiles row by row, if there are some, and then the whole."""

    pixels: list[NDArray[np.float32]]  # [height, width, 3] each
    rows: int = 0
    columns: int = 0
    size: tuple[int, int] = (0, 0)  # height and width of the image itself


class Preprocessing(Protocol):
    """How images become frames, and what stands for them in a text."""

    def frames(self, image: Any, among: int = 1) -> Frames: ...
    def text_of(self, frames: Frames, mark: str) -> str: ...
    def views(self, frames: Frames, rows: int) -> list[View]: ...


def one_by_one(frames: Frames, rows: int) -> list[View]:
    """Each frame has a mark, and its rows are as they are seen."""
    return [View([pixels], rows, lambda seen: seen[0]) for pixels in frames.pixels]


def normalized(
    pixels: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]
) -> NDArray[np.float32]:
    """In the processors' steps and widths, so that every bit is theirs."""
    scaled = (pixels.astype(np.float64) * (1 / 255)).astype(np.float32)
    made = (scaled - np.array(mean, np.float32)) / np.array(std, np.float32)
    return np.ascontiguousarray(made, np.float32)


@dataclass(frozen=True)
class ClipPreprocessing:
    """Resize the shorter side, cut the middle out, and normalise each channel."""

    resize: int  # of the shorter side
    crop: tuple[int, int]  # height, width
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD
    resample: int = _BICUBIC

    def __post_init__(self) -> None:
        sizes = (self.resize, *self.crop)
        fits = len(self.crop) == 2 and all(isinstance(n, int) and 0 < n <= _LARGEST for n in sizes)
        fits = fits and len(self.mean) == len(self.std) == 3 and all(s > 0 for s in self.std)
        if not fits or self.resample not in range(6):
            raise ProgramFormatError(f"the preprocessing {asdict(self)} is not possible")

    @staticmethod
    def from_processor(config: Mapping[str, Any], size: int) -> ClipPreprocessing:
        """From preprocessor_config.json, whose fields may be absent; ``size`` is the model's."""
        for name in ("do_resize", "do_center_crop", "do_rescale", "do_normalize"):
            if config.get(name) is False:
                raise CheckpointError(
                    f"preprocessor_config.json: {name} is false, and must be true"
                )
        resize, crop = config.get("size", size), config.get("crop_size", size)
        resize = resize.get("shortest_edge", size) if isinstance(resize, dict) else resize
        sides = (crop.get("height"), crop.get("width")) if isinstance(crop, dict) else (crop, crop)
        if sides != (size, size):
            raise CheckpointError(
                f"preprocessor_config.json cuts out {sides}, and the model sees {size} x {size}"
            )
        mean, std = config.get("image_mean", CLIP_MEAN), config.get("image_std", CLIP_STD)
        return ClipPreprocessing(
            resize, (size, size), tuple(mean), tuple(std), config.get("resample", _BICUBIC)
        )

    @staticmethod
    def from_dict(parts: Mapping[str, Any]) -> ClipPreprocessing:
        try:
            fixed: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in parts.items()
            }
            return ClipPreprocessing(**fixed)
        except TypeError as error:
            raise ProgramFormatError(f"the preprocessing is damaged: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def frames(self, image: Any, among: int = 1) -> Frames:
        """The one view of an image that the model has."""
        return Frames([self.prepare(image)])

    def text_of(self, frames: Frames, mark: str) -> str:
        """What stands for an image in a prompt: a mark for each frame."""
        return mark

    def views(self, frames: Frames, rows: int) -> list[View]:
        return one_by_one(frames, rows)

    def prepare(self, image: Any) -> NDArray[np.float32]:
        """A Pillow image as [height, width, 3]."""
        picture = image.convert("RGB")
        width, height = picture.size
        short, long = min(width, height), max(width, height)
        scaled = int(self.resize * long / short)
        size = (self.resize, scaled) if width <= height else (scaled, self.resize)
        pixels = np.asarray(picture.resize(size, resample=self.resample))
        pixels = _middle(pixels, *self.crop)
        return normalized(pixels, self.mean, self.std)


def _middle(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """The middle of an image; what lies outside of a smaller one is black."""
    have = pixels.shape[:2]
    out = np.zeros((max(height, have[0]), max(width, have[1]), 3), np.uint8)
    top, left = -(-(out.shape[0] - have[0]) // 2), -(-(out.shape[1] - have[1]) // 2)
    out[top : top + have[0], left : left + have[1]] = pixels
    top, left = (have[0] - height) // 2 + top, (have[1] - width) // 2 + left
    return out[max(0, top) :][:height, max(0, left) :][:, :width]
