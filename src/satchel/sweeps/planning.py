"""Before anything is run: all cells with what they will take, and why some are not possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError, SatchelError
from satchel.eval.lm_eval_package import import_harness
from satchel.llm.named_prompts import PREFIX, named_prompt
from satchel.runtime.program import Program
from satchel.sweeps import peers
from satchel.sweeps.axes import Model, Prompt
from satchel.sweeps.content import content_digest, digest_of, with_contents
from satchel.sweeps.devices import LOCAL, BenchCall, open_device
from satchel.sweeps.estimates import (
    BASE_BYTES,
    START_S,
    Error,
    Estimate,
    Sources,
    Tell,
    estimate_exports,
    export_seconds,
    run_seconds,
)
from satchel.sweeps.experiment import QUALITY_FILES, Experiment
from satchel.sweeps.jobs import Export, Measurement, Quality, bandwidth_now, describe_error
from satchel.sweeps.machines import bandwidth
from satchel.sweeps.matrix import Cell, cells_of


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its name, its jobs and what they will take; or why it is not possible."""

    key: str
    cell: Cell
    measurements: tuple[Measurement, ...] = ()
    export: Export | None = None
    quality: Quality | None = None
    estimate: Estimate = field(default_factory=Estimate)
    seconds: float = 0.0  # of its measurements
    export_seconds: float = 0.0
    memory: int | None = None
    impossible: Mapping[str, str] | None = None  # an error, as ``--json`` tells it

    def to_dict(self) -> dict[str, Any]:
        """What the results need of the plan."""
        return {
            "cell": self.key,
            "label": self.cell.label,
            **{axis.rstrip("s"): name for axis, name in self.cell.names().items()},
            "source": self.cell.model.source,
            "kind": "vision" if self.cell.prompt is None else "language",
            "measurements": [f"cell-{self.key}-{m.repeat}" for m in self.measurements],
            "export": self.export.key if self.export else None,
            "source_digest": self.export.source_digest if self.export else None,
            "quality": self.quality.key if self.quality else None,
            "settings": dict(self.export.settings) if self.export else None,
            "planned": {
                **asdict(self.estimate),
                "memory_bytes": self.memory,
                "seconds": self.seconds,
                "export_seconds": self.export_seconds,
            },
            "impossible": self.impossible and dict(self.impossible),
        }


@dataclass
class Plan:
    """All cells of an experiment, in the order in which they are run."""

    experiment: Experiment
    cells: list[PlannedCell] = field(default_factory=list)

    @property
    def exports(self) -> list[Export]:
        """Each once, in the order in which they are needed."""
        return list({c.export.key: c.export for c in self.possible if c.export}.values())

    @property
    def qualities(self) -> list[Quality]:
        return list({c.quality.key: c.quality for c in self.possible if c.quality}.values())

    @property
    def possible(self) -> list[PlannedCell]:
        return [cell for cell in self.cells if cell.impossible is None]

    @property
    def seconds(self) -> float:
        """Of all of it, one after the other."""
        exports = {c.export.key: c.export_seconds for c in self.possible if c.export}
        return sum(exports.values()) + sum(c.seconds for c in self.possible)

    def groups(self) -> Iterator[list[PlannedCell]]:
        """Cells that are measured in turns: the same work on the same device by different means."""
        found: dict[tuple[Any, ...], list[PlannedCell]] = {}
        for planned in self.possible:
            cell = planned.cell
            prompt = cell.prompt.name if cell.prompt else ""
            place = (cell.model.source, cell.model.name, prompt, cell.device, cell.threads)
            found.setdefault(place, []).append(planned)
        yield from found.values()

    def to_dict(self) -> dict[str, Any]:
        e = self.experiment
        return {
            "name": e.name,
            "runs": e.runs,
            "repeats": e.repeats,
            "warmup": e.warmup,
            "cool_down": asdict(e.cool_down),
            "quality": dict(e.quality),
            "satchel": version("satchel"),
            "cells": [cell.to_dict() for cell in self.cells],
        }


def make_plan(experiment: Experiment, fetch: bool, work: Path, tell: Tell = lambda _: None) -> Plan:
    """Every cell with its jobs. With ``fetch``, checkpoints are brought here first; without, what
    is not here is only estimated. ``work`` is for what peers are given.
    """
    cells = cells_of(experiment)
    for key in QUALITY_FILES:
        if (text := experiment.quality.get(key)) and not Path(text).is_file():
            raise ConfigError(f"quality: {key}: {text} is no file", "Relative paths begin at FILE.")
    if experiment.quality.get("tasks") and find_spec("lm_eval") is None:
        import_harness()  # says what is missing
    sources = Sources(fetch, tell)
    exports: dict[tuple[Any, ...], Export | Error] = {}
    for cell in cells:
        if not cell.peer and _place(cell) not in exports:
            exports[_place(cell)] = _export_of(cell, experiment, sources)
    made = [export for export in exports.values() if isinstance(export, Export)]
    estimates = estimate_exports(made, sources, tell)
    speed = (bandwidth_now(LOCAL, bandwidth) if experiment.speed else None) or 1e10
    planned = []
    for cell in cells:
        if cell.peer:
            planned.append(_peer_cell(cell, experiment, sources, work))
            continue
        export = exports[_place(cell)]
        found = export if isinstance(export, dict) else estimates[export.key]
        if isinstance(export, dict) or isinstance(found, dict):
            key = digest_of([cell.names(), cell.model.source])
            planned.append(PlannedCell(key, cell, impossible=found))  # type: ignore[arg-type]
            continue
        planned.append(_cell(cell, experiment, export, found, speed))
    return Plan(experiment, planned)


def _place(cell: Cell) -> tuple[Any, ...]:
    """What cells with the same program have in common."""
    return (cell.model.source, cell.model.name, cell.recipe.name, cell.target, cell.mode)


def _export_of(cell: Cell, experiment: Experiment, sources: Sources) -> Export | Error:
    model, label = cell.model, cell.program_label
    if model.is_program:
        try:
            program = Program(model.source)
        except (SatchelError, OSError) as error:
            return describe_error(error)
        return Export(program.checksum[:20], label, {}, program=model.source)
    settings = {**experiment.export, **model.options, **cell.recipe.options}
    settings |= {"source": model.source, "target": cell.target}
    settings |= {"mode": cell.mode} if cell.mode else {}
    content: Any = [model.source, *model.flags]
    digest = None
    if not model.is_vision:
        path = sources.find(str(settings.get("checkpoint") or model.source))
        if isinstance(path, dict):
            return path
        if path is not None and not path.name.startswith("hollow-"):
            content = digest = content_digest(path)
    same = {key: value for key, value in settings.items() if key != "source"}
    flags = [f"content:{content_digest(Path(f))}" if Path(f).is_file() else f for f in model.flags]
    key = digest_of([version("satchel"), content, with_contents(same), flags])
    return Export(key, label, settings, model.flags, source_digest=digest)


def _cell(
    cell: Cell, experiment: Experiment, export: Export, found: Estimate, speed: float
) -> PlannedCell:
    export = replace(export, memory=found.export_bytes or 0)
    prompt = cell.prompt
    call = bench_call(cell, experiment)
    quality = None
    if experiment.quality and cell.prompt is not None:
        key = digest_of([export.key, with_contents(experiment.quality)])
        checkpoint = str(export.settings.get("source", ""))
        quality = Quality(key, f"quality of {export.label}", export, checkpoint, experiment.quality)
    where = [cell.device, cell.threads, asdict(call), asdict(experiment.cool_down)]
    key = digest_of([cell.names(), export.key, where, quality.key if quality else ""])
    refused = answers(cell.device) or _refused(cell.device, call) or _no_prompt(prompt)
    if refused:
        return PlannedCell(key, cell, impossible=refused, estimate=found)
    if prompt and found.context and not prompt.file:
        wanted = prompt.tokens + prompt.new_tokens
        if wanted > found.context:
            reason = f"{wanted} tokens are more than the context of {found.context}"
            long = {"type": "ConfigError", "message": reason, "advice": "Use fewer."}
            return PlannedCell(key, cell, impossible=long, estimate=found)
    repeats = range(experiment.repeats if experiment.speed else 0)
    measurements = tuple(
        Measurement(key, number, cell.label, export, cell.device, call) for number in repeats
    )
    return PlannedCell(
        key,
        cell,
        measurements,
        export,
        quality,
        found,
        run_seconds(found, cell, experiment, speed) * len(measurements),
        0.0 if export.program else export_seconds(found),
        None if found.file_bytes is None else found.file_bytes + BASE_BYTES,
    )


@cache
def answers(address: str) -> Error | None:
    """What is wrong with a device, if something is: each is asked once."""
    try:
        open_device(address).facts()
    except SatchelError as error:
        return describe_error(error)
    return None


def _refused(address: str, call: BenchCall) -> Error | None:
    reason = open_device(address).refuses(call)
    return {"type": "ConfigError", "message": reason, "advice": ""} if reason else None


def _no_prompt(prompt: Prompt | None) -> Error | None:
    """What is wrong with the file of a prompt, if something is."""
    if prompt is None or not prompt.file:
        return None
    try:
        if prompt.file.startswith(PREFIX):
            named_prompt(prompt.file)
        elif not Path(prompt.file).is_file():
            raise ConfigError(f"the prompt {prompt.file} is no file", "Check the path.")
    except SatchelError as error:
        return describe_error(error)
    return None


def bench_call(cell: Cell, experiment: Experiment) -> BenchCall:
    """What a measurement of this cell is told."""
    prompt = cell.prompt
    return BenchCall(
        prompt.tokens if prompt else None,
        prompt.new_tokens if prompt else None,
        prompt.file if prompt else None,
        experiment.warmup,
        experiment.runs,
        cell.threads,
        cell.mode == "lookahead",
    )


def _peer_cell(cell: Cell, experiment: Experiment, sources: Sources, work: Path) -> PlannedCell:
    call = bench_call(cell, experiment)
    settings = {"peer": cell.peer, "source": cell.model.source, "precision": cell.recipe.name}
    key = digest_of([cell.names(), settings, asdict(call), asdict(experiment.cool_down)])
    try:
        if call.prompt_file:
            raise ConfigError("peers are measured with random prompts of a length, not with files")
        source = None if cell.model.is_vision else sources.find(cell.model.source)
        if isinstance(source, dict):
            return PlannedCell(key, cell, impossible=source)
        peer = peers.find_peer(cell, _model_path(cell.model, source), experiment.folder, work)
    except SatchelError as error:
        return PlannedCell(key, cell, impossible=describe_error(error))
    repeats = range(experiment.repeats if experiment.speed else 0)
    measurements = tuple(
        Measurement(key, number, cell.label, None, cell.device, call, peer) for number in repeats
    )
    return PlannedCell(key, cell, measurements, seconds=len(measurements) * 2 * START_S)


def _model_path(model: Model, found: Path | None) -> str:
    return model.source if found is None else str(found)
