"""The three runs of one model: float, quantise-dequantise, and what really runs.

``fp`` is the float graph with the checkpoint's weights, as a program of the recipe fp32;
``qdq`` the program's own graph and stored weights in the reference; ``device`` the program.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from satchel.backends import open_instance
from satchel.errors import EvaluationError
from satchel.exporter import ExportOptions
from satchel.exporter.cached import program_for
from satchel.exporter.checkpoint import check_weights, encode_model, open_model
from satchel.llm.session import Session
from satchel.runtime.program import Program
from satchel.sources.cache import checkpoints_folder
from satchel.sources.catalog import CATALOG
from satchel.sources.progress import Progress

PHASES = ("fp", "qdq", "device")


def check_phases(names: Sequence[str]) -> tuple[str, ...]:
    """The phases in their usual order, each once.

    >>> check_phases(["device", "fp"])
    ('fp', 'device')
    """
    for name in names:
        if name not in PHASES:
            raise EvaluationError(f"there is no phase {name!r}", f"Phases: {', '.join(PHASES)}.")
    if not names:
        raise EvaluationError("no phase was chosen", f"Phases: {', '.join(PHASES)}.")
    return tuple(name for name in PHASES if name in names)


@dataclass
class PhaseMaker:
    """Opens a program's phases. What could go wrong is found out when this is made."""

    program: Program
    names: tuple[str, ...]
    checkpoint: str | os.PathLike[str] | None = None
    threads: int = 0
    progress: Progress | None = None
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.context = int(self.program.states[0]["shape"][1])
        if "fp" in self.names:
            self.checkpoint = self.checkpoint or find_checkpoint(self.program)
            self._float = ExportOptions(recipe="fp32", context=self.context)
            self._check_model(self.checkpoint)

    def _check_model(self, checkpoint: str | os.PathLike[str]) -> None:
        mine = self.program.metadata
        opened = open_model(checkpoint, self._float, self.progress)
        theirs = {
            "architecture": opened.checkpoint.config["model_type"],
            "parameters": check_weights(opened, encode_model(opened)),
            "vocab_size": opened.model.vocab_size,
        }
        for field, value in theirs.items():
            if mine.get(field, value) != value:
                raise EvaluationError(
                    f"{self.checkpoint} is of another model: its {field} is {value}, and that of "
                    f"{self.program.path} is {mine[field]}",
                    "Give the checkpoint that the program was made of.",
                )

    def open(self, phase: str) -> Session:
        """A session that runs a phase."""
        if phase == "device":
            return Session(self.program, self.threads)
        if phase == "qdq":
            return Session(self.program, instance=open_instance(self.program, reference=True))
        assert self.checkpoint is not None
        path = program_for(self.checkpoint, self._float, self.progress, self.say)
        return Session(Program(path), self.threads)


def find_checkpoint(program: Program) -> Path:
    """The checkpoint that a program was made of, if the cache has it; nothing is fetched."""
    name = program.about.name
    file = str(program.about.provenance.get("file"))
    entry = CATALOG.get(name)
    if entry is not None:
        candidate = checkpoints_folder() / entry.name / file
        if candidate.is_file():
            return candidate
    raise EvaluationError(
        f"the float phase needs the checkpoint that {program.path} was made of ({file}), and it "
        "is not in the cache",
        "Give it with --checkpoint, or leave fp out of --phases.",
    )
