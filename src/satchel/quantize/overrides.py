"""Mixed precision: layers that get another scheme than the rest, chosen by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from satchel.errors import ConfigError, RecipeError
from satchel.quantize.scheme import Scheme
from satchel.quantize.schemes import find_scheme


@dataclass(frozen=True)
class Override:
    """The layers that ``pattern`` matches are stored and run as ``scheme`` says.

    A pattern (``*``, ``?``, ``[…]`` as in file names; a star also spans dots) is matched with the
    weight's full name, with the name without ``model.`` before and ``.weight`` behind it, and
    with that without a last ``_proj``.

    >>> one = Override.parse("layers.*.mlp.down", "8da4w:64")
    >>> one.matches("model.layers.3.mlp.down_proj.weight"), one.scheme.name, one.group
    (True, '8da4w', 64)
    """

    pattern: str
    scheme: Scheme
    group: int

    @staticmethod
    def parse(pattern: str, value: str) -> Override:
        """``value`` is the name of a scheme, or name:group."""
        name, colon, group = value.partition(":")
        if colon and not group.isdigit():
            raise RecipeError(
                f"{value!r} is not a scheme", "Write for example 16a8w, or 8da4w:64 with a group."
            )
        scheme = find_scheme(name)
        return Override(pattern, scheme, scheme.checked_group(int(group) if colon else None))

    def matches(self, name: str) -> bool:
        return any(fnmatchcase(one, self.pattern) for one in _names(name))

    def __str__(self) -> str:
        return f"{self.pattern}={self.value}"

    @property
    def value(self) -> str:
        return self.scheme.name + (f":{self.group}" if self.group else "")


def parse_overrides(given: Mapping[str, str]) -> tuple[Override, ...]:
    return tuple(Override.parse(pattern, value) for pattern, value in given.items())


def split_override(text: str) -> tuple[str, str]:
    """
    >>> split_override("layers.*.mlp.down=16a8w")
    ('layers.*.mlp.down', '16a8w')
    """
    pattern, _, value = text.rpartition("=")
    if not pattern or not value:
        raise ConfigError(
            f"{text!r} is not PATTERN=SCHEME", "Write for example layers.*.mlp.down=16a8w."
        )
    return pattern, value


def check_matches(overrides: Iterable[Override], weights: Sequence[str]) -> None:
    """Every override must match one of the weights; the error names the nearest layer."""
    for override in overrides:
        if any(override.matches(name) for name in weights):
            continue
        # Layers differ in their numbers only, so each kind is named once.
        kinds = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", _names(n)[-1]) for n in weights))
        near = difflib.get_close_matches(override.pattern, kinds, 1, cutoff=0.0)
        raise RecipeError(
            f"the override {override.pattern!r} matches no layer",
            f"Did you mean {near[0]!r}?" if near else "",
        )


def _names(full: str) -> tuple[str, str, str]:
    short = full.removeprefix("model.").removesuffix(".weight")
    return full, short, short.removesuffix("_proj")
