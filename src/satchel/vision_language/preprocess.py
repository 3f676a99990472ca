"""Images as CLIP's processor prepares them, bit by bit; the choices travel in the program file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.errors import CheckpointError, InputError, ProgramFormatError
from satchel.vision.images import MOST_PIXELS
from satchel.vision_language.shown import View

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)  # SigLIP's mean, and its deviation
_BICUBIC = 3  # Pillow's number
_LARGEST = 1 << 12
_NATIVE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # by Pillow's number


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


def in_rgb(image: Any) -> Any:
    """A Pillow image in three colours, with white behind what is transparent."""
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        from PIL import Image

        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
    return image.convert("RGB")


def resized_part(
    picture: Any, size: tuple[int, int], area: tuple[int, int, int, int], resample: int
) -> NDArray[np.uint8]:
    """An area (left, top, width, height) of a resized image, which as a whole may be very long.

    Bit by bit what Pillow 13 does; others go over rows and columns in another order.
    """
    if resample in _NATIVE:
        return _native.resize_part(np.asarray(picture), size, area, _NATIVE[resample])
    require_possible(*size)
    left, top, width, height = area
    cut: Any = picture.resize(size, resample).crop((left, top, left + width, top + height))
    return np.asarray(cut)


def resized(picture: Any, size: tuple[int, int], resample: int) -> Any:
    """A Pillow image in another size."""
    from PIL import Image

    return Image.fromarray(resized_part(picture, size, (0, 0, *size), resample))


def in_square(picture: Any, mean: Sequence[float]) -> Any:
    """In the middle of a square of the mean colour."""
    from PIL import Image

    width, height = picture.size
    most = max(width, height)
    require_possible(most, most)
    square = Image.new("RGB", (most, most), tuple(int(channel * 255) for channel in mean))
    square.paste(picture, ((most - width) // 2, (most - height) // 2))
    return square


def require_possible(width: int, height: int) -> None:
    """Pictures that are made on the way to the model may be larger than what they are made of."""
    if width * height > 4 * MOST_PIXELS:
        raise InputError(
            f"a picture would have {width} by {height} pixels on its way to the model", "Shrink it."
        )


def require_usual(processor: Mapping[str, Any], steps: Sequence[str]) -> None:
    """What all models here need of preprocessor_config.json, whose fields may be absent."""
    for name in steps:
        if processor.get(name) is False:
            raise CheckpointError(f"preprocessor_config.json: {name} is false, and must be true")
    factor = processor.get("rescale_factor")
    if factor is not None and factor != 1 / 255:
        raise CheckpointError(
            f"preprocessor_config.json: rescale_factor is {factor}, and must be {1 / 255}"
        )


def edges(processor: Mapping[str, Any], name: str) -> dict[str, int]:
    """A size as preprocessor_config.json has it: by its edges, or one number."""
    size = processor.get(name)
    if isinstance(size, int):
        return {"shortest_edge": size, "longest_edge": size, "height": size, "width": size}
    found = {k: v for k, v in size.items() if v is not None} if isinstance(size, dict) else {}
    if any(not isinstance(n, int) for n in found.values()) or (size is not None and not found):
        raise CheckpointError(f"preprocessor_config.json: {name} is {size!r}")
    return found


@dataclass(frozen=True)
class ClipPreprocessing:
    """Resize, cut the middle out, and normalise each channel."""

    resize: int | tuple[int, int]  # of the shorter side; or height and width
    crop: tuple[int, int]  # height, width
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD
    resample: int = _BICUBIC
    square: bool = False  # made one of the mean colour first

    def __post_init__(self) -> None:
        resize = self.resize if isinstance(self.resize, tuple) else (self.resize,) * 2
        sizes = (*resize, *self.crop)
        fits = len(sizes) == 4 and all(isinstance(n, int) and 0 < n <= _LARGEST for n in sizes)
        fits = fits and len(self.mean) == len(self.std) == 3 and all(s > 0 for s in self.std)
        if not fits or self.resample not in range(6) or not isinstance(self.square, bool):
            raise ProgramFormatError(f"the preprocessing {asdict(self)} is not possible")

    @staticmethod
    def from_processor(
        config: Mapping[str, Any], size: int, is_clip: bool = True
    ) -> ClipPreprocessing:
        """From preprocessor_config.json, whose fields may be absent; ``size`` is the model's.

        What CLIP's processor cuts out, SigLIP's does not: it gives an image both sides.
        """
        kind = str(config.get("image_processor_type", "CLIP" if is_clip else "Siglip"))
        usual = (HALF, HALF) if kind.startswith("Siglip") else (CLIP_MEAN, CLIP_STD)
        require_usual(config, ("do_resize", "do_rescale", "do_normalize"))
        given, cut = edges(config, "size"), edges(config, "crop_size")
        cuts = config.get("do_center_crop", not kind.startswith("Siglip"))
        resize: int | tuple[int, int] = given.get("shortest_edge", size)
        if "height" in given and "width" in given and not (cuts and "shortest_edge" in given):
            resize = given["height"], given["width"]
        elif not cuts and not given:
            resize = size, size
        wanted = resize if not cuts else (cut.get("height", size), cut.get("width", size))
        if wanted != (size, size):
            made = wanted if isinstance(wanted, tuple) else "the whole"
            raise CheckpointError(
                f"preprocessor_config.json cuts out {made}, and the model sees {size} x {size}"
            )
        return ClipPreprocessing(
            resize,
            (size, size),
            tuple(config.get("image_mean") or usual[0]),
            tuple(config.get("image_std") or usual[1]),
            config.get("resample", _BICUBIC),
            kind.startswith("Llava") and config.get("do_pad") is True,
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
        made = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return made if self.square else {k: v for k, v in made.items() if k != "square"}

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
        picture = in_rgb(image)
        if self.square:
            picture = in_square(picture, self.mean)
        width, height = self._scaled(*picture.size)
        across, down = _middle(width, self.crop[1]), _middle(height, self.crop[0])
        area = (across.start, down.start, across.count, down.count)
        pixels = np.zeros((*self.crop, 3), np.uint8)
        part = resized_part(picture, (width, height), area, self.resample)
        pixels[down.to : down.to + down.count, across.to : across.to + across.count] = part
        return normalized(pixels, self.mean, self.std)

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of the resized image."""
        if isinstance(self.resize, tuple):
            return self.resize[1], self.resize[0]
        short, long = min(width, height), max(width, height)
        scaled = int(self.resize * long / short)
        return (self.resize, scaled) if width <= height else (scaled, self.resize)


@dataclass(frozen=True)
class _Cut:
    """Which pixels of a side are cut out, and where they lie in what is seen."""

    start: int
    count: int
    to: int


def _middle(have: int, wanted: int) -> _Cut:
    """What lies outside of a smaller image is black."""
    if have >= wanted:
        return _Cut((have - wanted) // 2, wanted, 0)
    return _Cut(0, have, (wanted - have + 1) // 2)
