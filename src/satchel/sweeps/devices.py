"""Where cells are measured: this machine, or a device that is reached from it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from satchel import devices
from satchel.errors import ConfigError
from satchel.sweeps.machines import bandwidth, machine_facts, temperature
from satchel.sweeps.processes import run_json

LOCAL = "local"
FORMS = "local, ssh:[USER@]HOST or adb:SERIAL"


@dataclass(frozen=True)
class BenchCall:
    """What a measurement is told, whoever does it."""

    prompt_tokens: int | None  # None: one call of a model that is no language model
    new_tokens: int | None
    prompt_file: str | None
    warmup: int
    runs: int
    threads: int  # 0: one for each core
    lookahead: bool = False

    def arguments(self) -> list[str]:
        """As options of ``satchel bench``."""
        options = [f"--warmup={self.warmup}", f"--runs={self.runs}"]
        if self.prompt_tokens is not None:
            options += [f"--new-tokens={self.new_tokens}"]
            if self.prompt_file:
                options += [f"--prompt-file={self.prompt_file}"]
            else:
                options += [f"--prompt-tokens={self.prompt_tokens}"]
        options += [f"--threads={self.threads}"] if self.threads else []
        return options + (["--lookahead=auto"] if self.lookahead else [])


class Device(Protocol):
    """A machine that measures one thing at a time."""

    address: str
    turn: str  # two devices with the same one are the same machine

    def facts(self) -> dict[str, Any]:
        """What it is: machine, cpu, cores, memory_bytes, governor, and so on."""

    def temperature(self) -> float | None:
        """In degrees Celsius; None if it cannot be told."""

    def bandwidth(self) -> float | None:
        """What it reads from memory now, in bytes a second; None if it cannot be told."""

    def command(self, program: Path, call: BenchCall) -> list[str]:
        """What is run, for whoever wants to do it again by hand."""

    def refuses(self, call: BenchCall) -> str | None:
        """Why it cannot measure this; None if it can."""

    def bench(
        self, program: Path, call: BenchCall, log: Path, limit: float, hold: Sequence[int]
    ) -> dict[str, Any]:
        """The document of ``satchel bench --json``; raises Failed or a SatchelError."""


class LocalDevice:
    """The machine that this runs on, each measurement in a process of its own."""

    address = LOCAL
    turn = ""

    def facts(self) -> dict[str, Any]:
        return machine_facts()

    def temperature(self) -> float | None:
        return temperature()

    def bandwidth(self) -> float | None:
        return bandwidth()

    def command(self, program: Path, call: BenchCall) -> list[str]:
        return [*satchel("bench", str(program)), *call.arguments(), "--json"]

    def refuses(self, call: BenchCall) -> str | None:
        return None

    def bench(
        self, program: Path, call: BenchCall, log: Path, limit: float, hold: Sequence[int]
    ) -> dict[str, Any]:
        return run_json(self.command(program, call), log, limit_s=limit, hold=hold)


class RemoteDevice:
    """A phone or a board: ``satchel bench --device`` sends what is needed and measures there."""

    def __init__(self, address: str) -> None:
        self.address = self.turn = address
        self._device = devices.open_device(address)

    def facts(self) -> dict[str, Any]:
        told = self._device.describe()
        return {
            "machine": told.model or told.name,
            "cpu": ", ".join(part for part in (told.soc, told.machine) if part),
            "cores": told.cores,
            "memory_bytes": told.memory_bytes,
            "system": told.system,
            "governor": told.governor,
            "satchel": machine_facts()["satchel"],
        }

    def temperature(self) -> float | None:
        return self._device.describe().condition.temperature_c

    def bandwidth(self) -> float | None:
        return None  # the measurement itself tells it, where the device can

    def command(self, program: Path, call: BenchCall) -> list[str]:
        words = [*satchel("bench", str(program)), *call.arguments()]
        return [*words, "--device", self.address, "--json"]

    def refuses(self, call: BenchCall) -> str | None:
        """What a device does not measure, if that is asked for."""
        if call.prompt_file:
            return "prompts of a device are random tokens"
        return "lookahead is not measured on a device" if call.lookahead else None

    def bench(
        self, program: Path, call: BenchCall, log: Path, limit: float, hold: Sequence[int]
    ) -> dict[str, Any]:
        return run_json(self.command(program, call), log, limit_s=limit, hold=hold)


def satchel(*arguments: str) -> list[str]:
    """A command of ours, as this interpreter runs it."""
    return [sys.executable, "-m", "satchel", *arguments]


def open_device(address: str) -> Device:
    """A device by its address; whether it answers is found out when it is asked.

    >>> open_device("local").turn
    ''
    """
    if address == LOCAL:
        return LocalDevice()
    if not address.startswith(("ssh:", "adb:")):
        raise ConfigError(f"{address!r} is not a device", f"Devices are {FORMS}.")
    return RemoteDevice(address)
