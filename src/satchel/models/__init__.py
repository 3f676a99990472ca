"""One file per architecture, named as its Hugging Face ``model_type`` and found by it."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from satchel.errors import ConfigError, UnsupportedModelError, blaming
from satchel.models.base import Decoder

if TYPE_CHECKING:
    from satchel.sources.catalog import CatalogEntry

_ENCODERS = re.compile("bert|electra|mpnet")  # in their names; others are told what there is
_HELPERS = {"base", "config", "experts", "rope"}


def architectures() -> list[str]:
    """The model types that have a file here."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _HELPERS)


def build_model(config: Mapping[str, Any]) -> Decoder:
    """The model of a configuration in Hugging Face's terms."""
    model_type = str(config.get("model_type", ""))
    if model_type not in architectures():
        advice = f"Supported: {', '.join(architectures())}."
        if _ENCODERS.search(model_type):
            advice = "An encoder of texts is exported with --task feature-extraction."
        raise UnsupportedModelError(
            f"there is no model file for the architecture {model_type or '(none given)'!r}", advice
        )
    module = importlib.import_module(f"{__name__}.{model_type}")
    advice = "Use the config.json that came with the weights."
    with blaming(ConfigError, f"the configuration of this {model_type} model is wrong", advice):
        model: Decoder = module.Model(config)
    return model


class _Callable(ModuleType):
    """``satchel.models()`` lists the models that have a name, although this is a package."""

    def __call__(self) -> list[CatalogEntry]:
        from satchel.sources.catalog import catalog

        return catalog()


sys.modules[__name__].__class__ = _Callable
