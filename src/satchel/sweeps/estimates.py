"""What exports and measurements will take, as far as it can be told before they are run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from satchel.errors import SatchelError
from satchel.machine import cores
from satchel.runtime.program import Program
from satchel.sources import known_entry, pull
from satchel.sources.names import VISION_PREFIX
from satchel.sources.pull import fetched
from satchel.sweeps.experiment import Experiment
from satchel.sweeps.jobs import Export, describe_error
from satchel.sweeps.matrix import Cell
from satchel.units import counted

Tell = Callable[[str], None]
Error = dict[str, str]  # as ``--json`` tells it
START_S, BASE_BYTES = 1.5, 55_000_000  # of a process that measures
_MACS_S = 30e9  # of a core, until something has been measured
_PARAMETERS_S = 50e6  # that a core exports
_IMAGE_REUSE = 160  # how often a call of a vision model uses a weight, more or less
_BITS = {"fp32": 32, "fp16": 16, "16a8w": 8, "8a8w": 8, "int8": 8}  # of a weight; others: 4.5


@dataclass(frozen=True)
class Estimate:
    """Of an export and of what it makes; None is not known, ``rough`` is no plan but a guess."""

    file_bytes: int | None = None
    export_bytes: int | None = None
    parameters: int | None = None
    context: int | None = None
    rough: bool = False
    compile_seconds: float = 0.0  # of a target's compiler


class Sources:
    """Checkpoints on this machine, each looked for once."""

    def __init__(self, fetch: bool, tell: Tell) -> None:
        self.fetch, self.tell = fetch, tell
        self.known: dict[str, Path | Error | None] = {}

    def find(self, source: str) -> Path | Error | None:
        """Its path, None if it is not here, or the error that says why it cannot be."""
        if source not in self.known:
            try:
                named = source.startswith("hf:") or known_entry(source) is not None
                if self.fetch and named and fetched(source) is None:
                    self.tell(f"fetching {source}")
                self.known[source] = pull(source) if self.fetch else fetched(source)
                if self.known[source] is None and not named:
                    pull(source)  # says what is wrong
            except (SatchelError, OSError) as error:
                self.known[source] = describe_error(error)
        return self.known[source]


def source_of(export: Export) -> str:
    """Where its weights come from."""
    return str(export.settings.get("checkpoint") or export.settings.get("source", ""))


def estimate_exports(
    exports: list[Export], sources: Sources, tell: Tell
) -> dict[str, Estimate | Error]:
    """What each export will take, by its own plan; or the error that it would end with."""
    unique = {export.key: export for export in exports}
    found: dict[str, Estimate | Error] = {}
    asked: list[Export] = []
    for export in unique.values():
        source = source_of(export)
        if export.program is not None:
            program = Program(export.program)
            context = program.language_model.context or None
            known = program.about.parameters or None
            found[export.key] = Estimate(program.size, 0, known, context)
        elif not source.startswith(VISION_PREFIX) and sources.find(source) is None:
            found[export.key] = _guess(source, export.settings)
        else:
            asked.append(export)
    if asked:
        tell(f"planning {counted(len(asked), 'export')}")
    for export, document in zip(asked, _plans(asked, sources), strict=True):
        if "error" in document:
            found[export.key] = document["error"]
            continue
        plan = document["plan"]
        found[export.key] = Estimate(
            plan["file_size_bytes"],
            plan["peak_memory_bytes"],
            plan["parameters"],
            document["context"],
            compile_seconds=sum(p.get("compile_seconds", 0) for p in plan["payloads"].values()),
        )
    return found


def _plans(exports: list[Export], sources: Sources) -> Iterator[dict[str, Any]]:
    """The plan of each, by ``satchel export --plan`` itself."""
    if not exports:
        return
    with tempfile.TemporaryDirectory() as folder:
        calls = []
        for number, export in enumerate(exports):
            config = Path(folder) / f"{number}.yaml"
            settings = dict(export.settings)
            path = sources.known.get(source_of(export))
            if isinstance(path, Path):  # not fetched again, nor written for a plan's sake
                settings["checkpoint" if "checkpoint" in settings else "source"] = str(path)
            config.write_text(yaml.safe_dump(settings))
            calls.append(["export", "--config", str(config), "--plan", "--json", *export.flags])
        lines = _worked(json.dumps(calls)).splitlines()
        for number in range(len(exports)):
            lost = {"type": "Failed", "message": "it could not be planned", "advice": ""}
            yield json.loads(lines[number]) if number < len(lines) else {"error": lost}


def _worked(calls: str) -> str:
    """What the process that plans prints. Ctrl-C is for this process, which ends that one and what
    it has forked; they would answer it with a traceback each."""
    command = [sys.executable, "-m", "satchel.sweeps.plan_worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as worker:
        try:
            return worker.communicate(calls)[0]
        except BaseException:
            os.killpg(worker.pid, signal.SIGKILL)
            raise


def _guess(source: str, settings: Mapping[str, Any]) -> Estimate:
    """For what has not been fetched: by the number of parameters, if the catalogue knows it."""
    entry = known_entry(source)
    if entry is None:
        return Estimate(rough=True)
    bits = _BITS.get(str(settings.get("recipe")), 4.5)
    size = int(entry.parameters * bits / 8)
    return Estimate(size, 120_000_000, entry.parameters, entry.context, rough=True)


def run_seconds(found: Estimate, cell: Cell, experiment: Experiment, speed: float) -> float:
    """Reading weights is what decoding takes, multiplying what all else takes."""
    parameters, size = found.parameters or 0, found.file_bytes or 0
    rate = _MACS_S * (cell.threads or cores())
    calls = experiment.warmup + experiment.runs
    if cell.prompt is None:
        one = parameters * _IMAGE_REUSE / rate
    else:
        one = parameters * cell.prompt.tokens / rate + cell.prompt.new_tokens * size / speed
    rest = experiment.cool_down.seconds
    return START_S + calls * one + rest


def export_seconds(found: Estimate) -> float:
    """Of packing all weights with all cores, and of what a target's compiler takes."""
    packing = (found.parameters or 0) / (_PARAMETERS_S * cores())
    return START_S + packing + found.compile_seconds
