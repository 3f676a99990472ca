"""The cells of an experiment: every combination of its axes that is not excluded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from satchel.errors import ConfigError
from satchel.remarks import remark
from satchel.sweeps.axes import Model, Prompt, Recipe
from satchel.sweeps.experiment import Experiment
from satchel.units import counted

OURS = ""  # who runs a cell, if not a peer
PEER_PRECISIONS = ("fp32", "int8")  # in which peers run vision models; language models have one


@dataclass(frozen=True)
class Cell:
    """One combination: what is measured, by whom, and where."""

    model: Model
    recipe: Recipe
    target: str
    mode: str
    prompt: Prompt | None
    device: str
    threads: int
    peer: str = OURS

    @property
    def label(self) -> str:
        """What tells it from the others, in a line."""
        parts = [self.program_label]
        parts += [self.prompt.name] if self.prompt else []
        parts += [self.device] if self.device != "local" else []
        parts += [counted(self.threads, "thread")] if self.threads else []
        return " ".join(part for part in parts if part)

    @property
    def program_label(self) -> str:
        """What tells its program, or its peer's, from others."""
        parts = [self.model.name, self.peer or self.target, self.recipe.name]
        parts += [self.mode] if self.mode not in ("", "hybrid") else []
        return " ".join(part for part in parts if part)

    def names(self) -> dict[str, str]:
        """Its place on every axis, as excludes and tables call it."""
        return {
            "models": self.model.name,
            "recipes": self.recipe.name,
            "targets": self.target,
            "modes": self.mode,
            "prompts": self.prompt.name if self.prompt else "",
            "devices": self.device,
            "threads": str(self.threads),
            "peers": self.peer,
        }


def cells_of(experiment: Experiment) -> list[Cell]:
    """All cells in the order of the axes, each once.

    >>> from satchel.sweeps.experiment import read_experiment
    >>> given = {"models": ["random:tiny-llama"], "recipes": ["fp16", "8da4w"], "prompts": [8, 16]}
    >>> [cell.label for cell in cells_of(read_experiment(given))][:2]
    ['tiny-llama cpu fp16 8+64', 'tiny-llama cpu fp16 16+64']
    """
    every = list(_expanded(experiment.axes))
    for rule in experiment.exclude:
        if not any(_matches(cell, rule) for cell in every):
            told = ", ".join(f"{axis}: {'|'.join(patterns)}" for axis, patterns in rule.items())
            remark(f"The exclude {{{told}}} matches no cell.")
    kept = [cell for cell in every if not _excluded(cell, experiment.exclude)]
    for more in experiment.include:
        kept += _expanded({**experiment.axes, **more})
    if experiment.only:
        for axis, pattern in ((a, p) for a, patterns in experiment.only.items() for p in patterns):
            # An empty one keeps what has no place on the axis, whether or not there is any.
            if pattern and not any(_matches(cell, {axis: [pattern]}) for cell in kept):
                remark(f"--only {axis}={pattern} matches no cell.")
        kept = [cell for cell in kept if _matches(cell, experiment.only)]
    unique: list[Cell] = []
    seen: set[tuple[Any, ...]] = set()
    for cell in kept:
        place = (cell.model.source, *cell.names().values())
        if place not in seen:
            seen.add(place)
            unique.append(cell)
    if not unique:
        advice = "Look at --only, and at exclude: in the experiment."
        raise ConfigError("every cell is excluded", advice)
    return unique


def _expanded(axes: Mapping[str, Sequence[Any]]) -> Iterator[Cell]:
    for model in axes["models"]:
        own = {**axes, **model.axes}
        recipes = [Recipe("")] if model.is_program else own["recipes"]
        targets = [""] if model.is_program else own["targets"]
        reads = model.is_language_model
        modes = [""] if model.is_program or not reads else own["modes"]
        prompts = own["prompts"] if reads else [None]
        places = list(product(own["devices"], own["threads"]))
        for recipe, target, mode, prompt in product(recipes, targets, modes, prompts):
            for device, threads in places:
                yield Cell(model, recipe, target, mode, prompt, device, threads)
        precisions = [Recipe("")]
        if not reads:
            precisions = [recipe for recipe in recipes if recipe.name in PEER_PRECISIONS]
        for peer, recipe, prompt in product(own["peers"], precisions, prompts):
            for threads in own["threads"]:
                yield Cell(model, recipe, "", "", prompt, "local", threads, peer)


def _excluded(cell: Cell, rules: Sequence[Mapping[str, Sequence[str]]]) -> bool:
    return any(_matches(cell, rule) for rule in rules)


def _matches(cell: Cell, rule: Mapping[str, Sequence[str]]) -> bool:
    """Whether it is what a rule says on every axis that it names. Peers have no target."""
    names = cell.names()
    return all(
        any(fnmatchcase(names[axis], pattern) for pattern in patterns)
        for axis, patterns in rule.items()
    )
