"""Reading pictures, with Pillow (``pip install 'satchel[images]'``)."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from satchel.errors import ConfigError, InputError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm"}
# The only decoders that are ever reached: others, such as EPS, run programs or scripts.
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
MOST_PIXELS = 89_000_000  # which take 0.4 GB once they are decoded, however small the file is


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError("reading images needs Pillow", "pip install 'satchel[images]'.") from None
    return Image


def open_image(source: Path | bytes, name: str) -> Any:
    """A Pillow image as it is meant to be seen, decoded as a whole so that damage shows here.

    It is turned as its EXIF orientation says, and has 8 bits for each channel.
    """
    image_module = _pillow()
    data = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with image_module.open(data, formats=FORMATS) as image:
            if image.size[0] * image.size[1] > MOST_PIXELS:
                size = " by ".join(map(str, image.size))
                raise InputError(f"{name} has {size} pixels", "Shrink it.")
            image.load()
            return _upright(_in_8_bits(image))
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        reason = "" if "cannot identify" in str(error) else f": {error}"
        raise InputError(
            f"{name} is not an image that can be read{reason}",
            f"Give one of these: {', '.join(FORMATS)}.",
        ) from None


def _upright(image: Any) -> Any:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error):
        return image.copy()  # what its EXIF says cannot be read


def _in_8_bits(image: Any) -> Any:
    """Grey of 16 or 32 bits brought to 8, of which Pillow would cut off what is above 255.

    White is the greatest number that 8, 16 or 32 bits hold, the first that no pixel exceeds; of
    floats, that is 1, 255, 65535 or the brightest pixel.
    """
    if not image.mode.startswith(("I", "F")):
        return image
    pixels = np.asarray(image).astype(np.float64)
    most = float(np.nanmax(pixels, initial=0.0, where=np.isfinite(pixels)))
    if image.mode.startswith("I;16"):
        white = 65535.0
    else:
        steps = (255.0, 65535.0, 2.0**32 - 1) if image.mode == "I" else (1.0, 255.0, 65535.0)
        white = next((step for step in steps if most <= step), most)
    grey = np.nan_to_num(pixels / white * 255, nan=0.0, posinf=255.0, neginf=0.0)
    made = _pillow().fromarray(np.rint(np.clip(grey, 0, 255)).astype(np.uint8))
    made.info["exif"] = image.getexif().tobytes()
    return made


def image_paths(folder: Path) -> Iterator[Path]:
    """The pictures below a folder, in the order of their names."""
    return (p for p in sorted(folder.rglob("*")) if p.suffix.lower() in SUFFIXES and p.is_file())
