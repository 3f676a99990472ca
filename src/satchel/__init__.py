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
    from satchel.benchmark.public import bench
    from satchel.errors import SatchelError
    from satchel.eval.public import evaluate
    from satchel.exporter import export
    from satchel.llm.llm import LLM
    from satchel.llm.sampling import SamplingOptions
    from satchel.progress import ProgressBar
    from satchel.remarks import Remark
    from satchel.runtime.program import Program, load
    from satchel.sources.catalog import catalog
    from satchel.speech.transcriber import SpeechOptions, Transcriber
    from satchel.sweeps.public import sweep
    from satchel.text.encoder import TextEncoder

    __version__: str

# Loaded when first used, so that `import satchel` and the command line stay quick.
_PLACES = {
    "LLM": "satchel.llm.llm",
    "Program": "satchel.runtime.program",
    "ProgressBar": "satchel.progress",
    "Remark": "satchel.remarks",
    "SamplingOptions": "satchel.llm.sampling",
    "SatchelError": "satchel.errors",
    "SpeechOptions": "satchel.speech.transcriber",
    "TextEncoder": "satchel.text.encoder",
    "Transcriber": "satchel.speech.transcriber",
    "bench": "satchel.benchmark.public",
    "catalog": "satchel.sources.catalog",
    "evaluate": "satchel.eval.public",
    "export": "satchel.exporter",
    "find_target": "satchel.backends",
    "load": "satchel.runtime.program",
    "sweep": "satchel.sweeps.public",
}

__all__ = [
    "LLM",
    "Program",
    "ProgressBar",
    "Remark",
    "SamplingOptions",
    "SatchelError",
    "SpeechOptions",
    "TextEncoder",
    "Transcriber",
    "__version__",
    "bench",
    "catalog",
    "evaluate",
    "export",
    "find_target",
    "load",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("satchel")
    if name == "models":  # a package that can be called: satchel.models() is satchel.catalog()
        return import_module("satchel.models")
    if name not in _PLACES:
        raise AttributeError(f"module 'satchel' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "models"])
