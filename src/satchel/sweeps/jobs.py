"""The pieces of work of a sweep. Each runs in processes of its own and gives a record, even if it
fails; where and when they run is for others to say, so they can be sent to another machine.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from satchel.errors import SatchelError
from satchel.files import atomic_write
from satchel.runtime.program import Program
from satchel.sweeps.devices import BenchCall, open_device, satchel
from satchel.sweeps.experiment import CoolDown
from satchel.sweeps.machines import cool_down, machine_facts, turn
from satchel.sweeps.processes import Failed, run_json
from satchel.sweeps.store import keep_facts, open_store, read_facts

Record = dict[str, Any]
_SAME_MOMENT = 20.0  # seconds within which memory is taken to be as fast as it was
_last_bandwidth: dict[str, tuple[float, float | None]] = {}  # by device: when, and how much


@dataclass(frozen=True)
class Export:
    """One program that is made, whatever number of cells use it."""

    key: str
    label: str
    settings: Mapping[str, Any]  # of `satchel export --config`
    flags: tuple[str, ...] = ()
    program: str | None = None  # one that is there already
    memory: int = 0  # that it will take, as its plan tells
    source_digest: str | None = None  # of the checkpoint's bytes, where it has some of its own

    @property
    def file(self) -> str:
        return f"{self.key}.satchel"

    def command(self, config: Path, output: Path) -> list[str]:
        """By hand: the settings in a file, and this."""
        call = satchel("export", "--config", str(config), "-o", str(output), "--force", "--json")
        return [*call, *self.flags]


@dataclass(frozen=True)
class Quality:
    """What quantisation cost one program; measured once, whatever number of cells use it."""

    key: str
    label: str
    export: Export
    checkpoint: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """One repeat of a cell: speed and memory."""

    cell: str
    repeat: int
    label: str
    export: Export | None
    device: str
    call: BenchCall
    peer: Mapping[str, Any] = field(default_factory=dict)  # who runs it, if not we


Job = Export | Quality | Measurement


def name_of(job: Job) -> str:
    """What its record is called."""
    if isinstance(job, Measurement):
        return f"cell-{job.cell}-{job.repeat}"
    return f"{'export' if isinstance(job, Export) else 'quality'}-{job.key}"


@dataclass(frozen=True)
class Surroundings:
    """What all jobs of a sweep are told."""

    store: str
    logs: str
    time_limit: float = 7200.0
    rest: CoolDown = field(default_factory=CoolDown)
    cold: Mapping[str, float | None] = field(default_factory=dict)  # temperatures at the beginning


def run_job(job: Job, around: Surroundings) -> Record:
    """Do the work. What goes wrong with it is in the record: the sweep goes on."""
    started = time.time()
    kinds: dict[type, Callable[..., Record]] = {
        Export: _export,
        Quality: _quality,
        Measurement: _measure,
    }
    try:
        found = {"ok": True, **kinds[type(job)](job, around)}
    except (Failed, SatchelError, OSError) as error:
        found = {"ok": False, "error": describe_error(error)}
    return _begun(job, started) | found | {"seconds": time.time() - started}


def failure(job: Job, kind: str, reason: str) -> Record:
    """The record of work that could not even be begun, or whose machine was lost."""
    error = {"type": kind, "message": reason, "advice": ""}
    return _begun(job, time.time()) | {"ok": False, "error": error, "seconds": 0.0}


def _begun(job: Job, started: float) -> Record:
    when = datetime.fromtimestamp(started, timezone.utc)
    return {
        "name": name_of(job),
        "kind": type(job).__name__.lower(),
        "label": job.label,
        "started": f"{when:%Y-%m-%dT%H:%M:%S.%fZ}",
    }


def describe_error(error: Exception) -> dict[str, str]:
    """As ``--json`` tells errors."""
    if isinstance(error, Failed):
        return {"type": error.kind, "message": str(error), "advice": error.advice}
    if isinstance(error, SatchelError):
        return {
            "type": type(error).__name__,
            "message": error.message,
            "advice": error.advice,
        }
    return {"type": type(error).__name__, "message": str(error), "advice": ""}


def program_of(export: Export, around: Surroundings) -> Path:
    """The file of an export that is done."""
    if export.program is not None:
        return Path(export.program)
    path = open_store(around.store).find(export.file)
    if path is None:
        raise Failed(f"{export.file} is not in {around.store}", "Lost")
    return path


def _export(job: Export, around: Surroundings) -> Record:
    if job.program is not None:
        program = Program(job.program)
        return {
            "program": job.program,
            "checksum": program.checksum,
            "file_size_bytes": program.size,
            "recipe": program.about.recipe_description,
        }
    store = open_store(around.store)
    known = read_facts(store, job.key)
    if known is not None and store.find(job.file) is not None:
        return known
    log = Path(around.logs) / f"{name_of(job)}.log"
    config = store.place(f"{job.key}.yaml")
    with atomic_write(config) as file:
        file.write(yaml.safe_dump(dict(job.settings), sort_keys=True).encode())
    place = store.place(job.file)
    command = job.command(config, place)
    with turn(alone=False) as lock:
        held = () if lock is None else (lock,)
        document = run_json(command, log, limit_s=around.time_limit, hold=held)
    for name in (config.name, job.file):
        store.keep(name)
    facts = {
        "program": job.file,
        "command": shlex.join(command),
        "settings": dict(job.settings),
        "export_seconds": document["seconds"],
        "export_peak_bytes": document["peak_rss_bytes"],
        "checksum": document["checksum"],
        "file_size_bytes": document["file_size_bytes"],
        "parameters": document.get("parameters") or document["plan"]["parameters"],
        "recipe": document["recipe"],
        "output_snr_db": document.get("output_snr_db"),
        "export_machine": machine_facts()["machine"],
    }
    keep_facts(store, job.key, facts)
    return facts


def _quality(job: Quality, around: Surroundings) -> Record:
    program = program_of(job.export, around)
    command = satchel("eval", str(program), "--json")
    for key, value in job.options.items():
        listed = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        command += [f"--{key}", listed]
    if "fp" in str(job.options.get("phases", "")):
        command += ["--checkpoint", job.checkpoint]
    log = Path(around.logs) / f"{name_of(job)}.log"
    with turn(alone=False) as lock:
        held = () if lock is None else (lock,)
        document = run_json(command, log, limit_s=around.time_limit, hold=held)
    return {"command": shlex.join(command), "document": document}


def _measure(job: Measurement, around: Surroundings) -> Record:
    device = open_device(job.device)
    log = Path(around.logs) / f"{name_of(job)}.log"
    if job.peer:
        from satchel.sweeps.peers import prepared_peer

        command, environment = prepared_peer(job.peer, job.call, Path(around.logs))
        program = None
    else:
        assert job.export is not None
        program = program_of(job.export, around)
        command, environment = device.command(program, job.call), {}
    with turn(alone=True, machine=device.turn) as lock:
        held = () if lock is None else (lock,)
        rested = cool_down(around.rest, around.cold.get(job.device), device.temperature)
        warmth = device.temperature()
        before = bandwidth_now(job.device, device.bandwidth)
        if program is None:
            found = run_json(command, log, environment, around.time_limit, held)
        else:
            found = device.bench(program, job.call, log, around.time_limit, held)
        after = found.get("read_bandwidth_bytes_s") if program is not None else None
        after = after or device.bandwidth()
        _last_bandwidth[job.device] = (time.monotonic(), after)
        variables = [f"{name}={value}" for name, value in environment.items()]
        by_hand = ["env", *variables, *command] if variables else command
        return {
            "command": shlex.join(by_hand),
            "document": found,
            "cool_down_s": rested,
            "temperature_before": warmth,
            "temperature_after": device.temperature(),
            "bandwidth_before": before,
            "bandwidth_after": after,
            "facts": device.facts(),
        }


def bandwidth_now(device: str, measure: Callable[[], float | None]) -> float | None:
    """What was found last, by planning or by a measurement, if that was just now; else it is
    measured."""
    when, known = _last_bandwidth.get(device, (0.0, None))
    if known is None or time.monotonic() - when >= _SAME_MOMENT:
        known = measure()
        _last_bandwidth[device] = (time.monotonic(), known)
    return known
