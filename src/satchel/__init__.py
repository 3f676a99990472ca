"""Satchel packs a model once and carries it to any chip.

>>> import satchel
>>> path = satchel.export("tiny-llama", "tiny.satchel")
>>> text = satchel.LLM(path).generate("Hello", max_new_tokens=8).finish().text
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satchel.backends import find_target
    from satchel.errors import SatchelError
    from satchel.exporter import export
    from satchel.llm.llm import LLM
    from satchel.llm.sampling import SamplingOptions
    from satchel.runtime.program import Program, load

# Loaded when first used, so that `import satchel` and the command line stay quick.
_PLACES = {
    "LLM": "satchel.llm.llm",
    "Program": "satchel.runtime.program",
    "SamplingOptions": "satchel.llm.sampling",
    "SatchelError": "satchel.errors",
    "export": "satchel.exporter",
    "load": "satchel.runtime.program",
    "find_target": "satchel.backends",
}

__all__ = ["LLM", "Program", "SamplingOptions", "SatchelError", "export", "find_target", "load"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'satchel' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
