"""Names of models as people write them: ours, Hugging Face's, and those of ExecuTorch's guides."""

from __future__ import annotations

import difflib

from satchel.errors import DownloadError
from satchel.sources.catalog import CATALOG, CatalogEntry

# What the guides call models whose name here has other letters or digits.
ALIASES = {
    "llama3_2": "llama3_2-1b-instruct",
    "glm-1_5b": "glm-edge-1_5b",
    "granite_3_3-2b_instruct": "granite3_3-2b",
    "gemma-2b-it": "gemma-2b",
    "gemma3-1b-it": "gemma3-1b",
    "phi_4_mini_instruct": "phi4-mini",
    "smollm2": "smollm2-135m",
    "smollm2-135m-instruct": "smollm2-135m",
    "smollm2-360m-instruct": "smollm2-360m",
    "qwen2_5-0_5b-instruct": "qwen2_5-0_5b",
    "qwen2_5-1_5b-instruct": "qwen2_5-1_5b",
}

# What ExecuTorch's examples call models of torchvision, and one of timm's.
VISION = {
    "mv2": "mobilenet_v2",
    "mv3": "mobilenet_v3_small",
    "mobilenet_v3": "mobilenet_v3_small",
    "vit": "vit_b_16",
    "torchvision_vit": "vit_b_16",
    "swin": "swin_t",
    "swin_t": "swin_t",
    "swin_transformer": "swin_t",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "ic3": "inception_v3",
    "ic4": "timm:inception_v4",
}
VISION_PREFIX = "torchvision:"


def _letters(name: str) -> str:
    """A name without what people write differently: Qwen3-0.6B, qwen3_0_6b and qwen3-0_6b."""
    return "".join(character for character in name.lower() if character.isalnum())


def known_entry(name: str) -> CatalogEntry | None:
    """The entry that a name means, however its parts are separated; None if there is none.

    >>> known_entry("Qwen3-0.6B").name, known_entry("granite_3_3-2b_instruct").name
    ('qwen3-0_6b', 'granite3_3-2b')
    """
    if name.lower() in CATALOG:
        return CATALOG[name.lower()]
    wanted = _letters(name)
    for alias, meant in [*((n, n) for n in CATALOG), *ALIASES.items()]:
        if _letters(alias) == wanted:
            return CATALOG[meant]
    return None


def vision_source(name: str) -> str:
    """``torchvision:NAME`` for what the guides call such a model; any other name as it is.

    >>> vision_source("mv3"), vision_source("ic4"), vision_source("qwen3-0_6b")
    ('torchvision:mobilenet_v3_small', 'timm:inception_v4', 'qwen3-0_6b')
    """
    own = name.lower().removeprefix(VISION_PREFIX)
    meant = next((VISION[theirs] for theirs in VISION if _letters(theirs) == _letters(own)), None)
    if meant is None:
        return name
    return meant if ":" in meant else f"{VISION_PREFIX}{meant}"


def find_entry(name: str) -> CatalogEntry:
    """The entry of a model's name, or an error that names the nearest one.

    >>> find_entry("smollm2-135m").parameters
    134515008
    """
    entry = known_entry(name)
    if entry is None:
        raise DownloadError(f"{name!r} is neither a path nor the name of a model", _advice(name))
    return entry


def _advice(name: str) -> str:
    names = [*CATALOG, *ALIASES, *VISION]
    near = difflib.get_close_matches(name.lower(), names, 1, cutoff=0.4)
    if not near:
        return f"Known names are {', '.join(CATALOG)}"
    return f"Did you mean {vision_source(ALIASES.get(near[0], near[0]))}?"
