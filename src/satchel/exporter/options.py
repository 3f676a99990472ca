"""What can be chosen at export."""

from __future__ import annotations

from dataclasses import dataclass

from satchel.errors import ConfigError
from satchel.quantize.recipe import Recipe

MODES = ("hybrid", "kv")
DEFAULT_CONTEXT = 2048
DEFAULT_PREFILL_AR_LEN = 128


@dataclass(frozen=True)
class ExportOptions:
    """Defaults are those of the command line.

    ``hybrid`` programs read a prompt ``prefill_ar_len`` tokens at a time and then go on one
    token at a time; ``kv`` programs only have the latter. ``context`` is capped by what the
    model was made for.
    """

    recipe: str = "8da4w"
    group_size: int | None = None
    embedding: tuple[int, int] | None = None
    head_bits: int | None = None
    mode: str = "hybrid"
    prefill_ar_len: int = DEFAULT_PREFILL_AR_LEN
    context: int = DEFAULT_CONTEXT

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"there is no mode {self.mode!r}", f"Modes: {', '.join(MODES)}.")
        if self.context < 2:
            raise ConfigError(f"a context of {self.context} tokens is too short", "Use 2 or more.")
        if self.prefill_ar_len < 2:
            raise ConfigError(
                f"prefill_ar_len must be at least 2, not {self.prefill_ar_len}", "Or use mode kv."
            )

    def make_recipe(self) -> Recipe:
        return Recipe.named(self.recipe, self.group_size, self.embedding, self.head_bits)
