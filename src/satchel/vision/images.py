"""Reading pictures, with Pillow (``pip install 'satchel[vision]'``)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError, InputError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm"}
MOST_PIXELS = 1 << 28


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError("reading images needs Pillow", "pip install 'satchel[vision]'.") from None
    return Image


def open_image(source: Path | bytes, name: str) -> Any:
    """A Pillow image, decoded as a whole so that damage shows here."""
    image_module = _pillow()
    data = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with image_module.open(data) as image:
            if image.size[0] * image.size[1] > MOST_PIXELS:
                size = " by ".join(map(str, image.size))
                raise InputError(f"{name} has {size} pixels", "Shrink it.")
            image.load()
            return image.copy()
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        reason = "" if "cannot identify" in str(error) else f": {error}"
        raise InputError(
            f"{name} is not an image that can be read{reason}", "Give a JPEG, PNG or BMP file."
        ) from None


def image_paths(folder: Path) -> Iterator[Path]:
    """The pictures below a folder, in the order of their names."""
    return (p for p in sorted(folder.rglob("*")) if p.suffix.lower() in SUFFIXES and p.is_file())
