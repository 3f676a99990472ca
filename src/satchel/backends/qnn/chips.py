"""The chips, and what each of them can do: the one place that knows."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from satchel.errors import ConfigError

GIGABYTE = 10**9


@dataclass(frozen=True)
class Chip:
    """A system on chip with a Hexagon NPU, as Qualcomm's compiler wants it named."""

    name: str
    hexagon: int  # the version of its NPU: 79 is v79
    soc_model: int  # Qualcomm's number; 0 leaves it to the version
    # What one context (one binary with its buffers) may take: the NPU's addresses have 32 bits.
    context_limit: int = 4 * GIGABYTE

    @property
    def target(self) -> str:
        return f"qnn:{self.name}"

    @property
    def has_block_weights(self) -> bool:
        """4-bit weights with a scale for each block (LPBQ)."""
        return self.hexagon >= 69

    @property
    def shares_weights(self) -> bool:
        """Several graphs of one binary may use one copy of the weights."""
        return self.hexagon >= 73

    @property
    def multiplies_16_by_16(self) -> bool:
        """Two activations of 16 bits may be multiplied: a KV cache of 16 bits."""
        return self.hexagon >= 73

    @property
    def has_floats(self) -> bool:
        """Graphs may compute in 16-bit floats."""
        return self.hexagon >= 69

    def options(self) -> dict[str, str]:
        """What the execution provider is told about the chip."""
        named = {"soc_model": str(self.soc_model)} if self.soc_model else {}
        return {"htp_arch": str(self.hexagon), **named}


CHIPS: tuple[Chip, ...] = (
    Chip("SM8350", 68, 30),
    Chip("SM8450", 69, 36),
    Chip("SM8475", 69, 42),
    Chip("SM8550", 73, 43),
    Chip("SM8650", 75, 57),
    Chip("SM8750", 79, 69),
    Chip("SM8850", 81, 87),
    *(Chip(f"v{version}", version, 0) for version in (68, 69, 73, 75, 79, 81)),
)


def find_chip(target: str) -> Chip:
    """The chip of a target.

    >>> find_chip("qnn:SM8750").hexagon, find_chip("qnn:v73").shares_weights
    (79, True)
    """
    _, _, name = target.partition(":")
    known = {chip.name.lower(): chip for chip in CHIPS}
    chip = known.get(name.lower())
    if chip is None:
        near = difflib.get_close_matches(name.lower(), known, 1)
        listed = ", ".join(chip.target for chip in CHIPS)
        said = f"Did you mean qnn:{known[near[0]].name}? " if near else ""
        raise ConfigError(f"there is no target {target!r}", f"{said}Targets: {listed}.")
    return chip


def usual_recipe(chip: Chip) -> str:
    """
    >>> usual_recipe(find_chip("qnn:SM8750")), usual_recipe(find_chip("qnn:v68"))
    ('16a4w', '16a8w')
    """
    return "16a4w" if chip.has_block_weights else "16a8w"
