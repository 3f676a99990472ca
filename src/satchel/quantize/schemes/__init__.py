"""The schemes that recipes are made of: one file each, found by name.

A new scheme is one file here, named as the scheme with an underscore before it.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from satchel.errors import RecipeError
from satchel.quantize.scheme import Scheme


@cache
def schemes() -> dict[str, Scheme]:
    """All of them by name, the most precise first."""
    files = [m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("_")]
    found: list[Scheme] = [import_module(f"{__name__}.{file}").SCHEME for file in files]
    found.sort(key=lambda s: (-s.bits, -s.activation_bits))
    return {scheme.name: scheme for scheme in found}


def find_scheme(name: str) -> Scheme:
    """
    >>> find_scheme("8da4w").activations
    'int8'
    """
    if name not in schemes():
        raise RecipeError(f"there is no recipe {name!r}", f"Recipes: {', '.join(schemes())}.")
    return schemes()[name]
