"""What can be chosen when a module is exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from satchel.backends import DEFAULT, Target, find_targets, leading_target
from satchel.options import NUMBER, option
from satchel.quantize.static import make_observer

MODULE = "for torchvision:NAME"
LEAST_SNR = 15.0


@dataclass(frozen=True)
class ModuleOptions:
    """What can be chosen when a module is exported."""

    recipe: str | None = None  # None: the target's
    target: str | Target | Sequence[str | Target] = DEFAULT
    overrides: Mapping[str, str] = field(default_factory=dict)
    observer: str = option(
        "minmax", "int8: minmax, percentile[:P] or mse (minmax)", metavar="NAME", group=MODULE
    )
    least_snr: float = option(
        LEAST_SNR,
        "int8: layers that 8 bits leave with less stay in floats, or have 16 bits where the target "
        "has no floats (15; -999: none)",
        NUMBER,
        metavar="DB",
        group=MODULE,
    )
    metadata: Mapping[str, Any] = field(default_factory=dict)  # goes into the file as it is

    def __post_init__(self) -> None:
        make_observer(self.observer)
        for target in self.targets:
            target.check_module(self.recipe_name, bool(self.overrides))

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """All targets that the program is made for."""
        return find_targets(self.target)

    @property
    def chip(self) -> Target:
        """The target whose defaults count."""
        return leading_target(self.targets)

    @property
    def recipe_name(self) -> str:
        """The recipe, or the target's usual one."""
        return self.recipe or self.chip.usual.module_recipe

    @property
    def needs_examples(self) -> bool:
        """Whether ranges are measured before anything is written."""
        return self.chip.needs_examples(self.recipe_name)
