"""Draws what was found onto the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satchel.errors import InputError
from satchel.vision.classifier import Prediction

_MARGIN = 0.02


def annotate(image: Any, predictions: Sequence[Prediction], output: Path) -> None:
    """Save the image with the classes in its upper left corner."""
    from PIL import Image, ImageDraw, ImageFont

    picture = image.convert("RGB")
    size = max(12, picture.size[1] // 24)
    font = ImageFont.load_default(size)
    lines = [f"{p.probability:6.1%}  {p.label}" for p in predictions]
    margin = max(2, int(_MARGIN * picture.size[1]))
    text = "\n".join(lines)
    draw = ImageDraw.Draw(picture, "RGBA")
    box = draw.multiline_textbbox((2 * margin, 2 * margin), text, font=font)
    draw.rectangle((margin, margin, box[2] + margin, box[3] + margin), fill=(0, 0, 0, 160))
    draw.multiline_text((2 * margin, 2 * margin), text, fill=(255, 255, 255), font=font)
    if output.suffix.lower() not in Image.registered_extensions():
        raise InputError(f"{output} is not the name of an image", "Write for example out.png.")
    picture.save(output)
