"""The vision-language models, by their model_type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from satchel.checkpoints.base import Checkpoint
from satchel.errors import ProgramFormatError
from satchel.vision_language.grid import GridPreprocessing
from satchel.vision_language.idefics3 import (
    IDEFICS3,
    SMOLVLM,
    Idefics3Tower,
    TilePreprocessing,
    open_idefics3,
)
from satchel.vision_language.llava import (
    LLAVA,
    LLAVA_NEXT,
    LLAVA_ONEVISION,
    LlavaTower,
    open_llava,
)
from satchel.vision_language.preprocess import ClipPreprocessing, Preprocessing
from satchel.vision_language.text_only import TEXT_ONLY, open_text

Tower = LlavaTower | Idefics3Tower
# With 4-bit weights, those that see stay in 8: they are bound by arithmetic.
USUAL = {"8da4w": "8a8w", "16a4w": "16a8w"}
_OPEN: dict[str, Callable[[Checkpoint], tuple[Checkpoint, Tower]]] = {
    **dict.fromkeys((LLAVA, LLAVA_NEXT, LLAVA_ONEVISION), open_llava),
    IDEFICS3: open_idefics3,
    SMOLVLM: open_idefics3,
}
_READ: dict[str, Callable[[Mapping[str, Any]], Preprocessing]] = {
    LLAVA: ClipPreprocessing.from_dict,
    **dict.fromkeys((LLAVA_NEXT, LLAVA_ONEVISION), GridPreprocessing.from_dict),
    IDEFICS3: TilePreprocessing.from_dict,
}


def split_tower(checkpoint: Checkpoint) -> tuple[Checkpoint, Tower | None]:
    """The checkpoint of a language model, and what sees before it, if something does."""
    kind = str(checkpoint.config.get("model_type"))
    if kind in TEXT_ONLY:
        return open_text(checkpoint), None
    opened = _OPEN.get(kind)
    return (checkpoint, None) if opened is None else opened(checkpoint)


def describe(tower: Tower) -> dict[str, Any]:
    """What a program says of its images."""
    return {
        "kind": tower.kind,
        "token": tower.token,
        "rows": tower.rows,
        "preprocessing": tower.preprocessing.to_dict(),
    }


def usual_overrides(tower: Tower, recipe: str) -> dict[str, str]:
    """How the weights that see are stored unless someone says otherwise."""
    usual = USUAL.get(recipe)
    return {f"{part}.*": usual for part in tower.parts} if usual else {}


def read_preprocessing(about: Mapping[str, Any]) -> Preprocessing:
    """From what a program says of its images."""
    read = _READ.get(str(about.get("kind")))
    if read is None:
        raise ProgramFormatError(f"the program prepares images as {about.get('kind')!r} does")
    return read(about["preprocessing"])
