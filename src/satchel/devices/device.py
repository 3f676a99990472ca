"""What a device can do, and how a shell on it does it."""

from __future__ import annotations

import os
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Protocol

from satchel.devices.description import SCRIPT, Description, parse_description
from satchel.devices.transfer import pull_file, push_file
from satchel.errors import DeviceError
from satchel.progress import Progress


@dataclass(frozen=True)
class Completed:
    """How a command on a device ended."""

    status: int
    output: bytes
    errors: str


class Device(Protocol):
    """A machine to measure on. ``name`` is how the command line names it."""

    name: str

    def push(self, path: str | os.PathLike[str], progress: Progress | None = None) -> str: ...

    def run(self, words: Sequence[str], timeout: float | None = None) -> Completed: ...

    def pull(
        self, place: str, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> Path: ...

    def describe(self) -> Description: ...


class ShellDevice(ABC):
    """A device that a command of this machine gives a shell on: all else is done by that shell."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self.folder = folder

    @abstractmethod
    def command(self, script: str) -> list[str]:
        """The command of this machine that runs a script on the device, bytes in and bytes out."""

    @abstractmethod
    def lost(self, status: int, errors: str) -> str | None:
        """What to do, if a command ended so because the device was not reached; else None."""

    def push(self, path: str | os.PathLike[str], progress: Progress | None = None) -> str:
        """Bring a file into the device's folder, unless it is there; says where it is then.

        What was sent before an interruption is not sent again. A folder that cannot be written,
        or that has too little room, is told before anything is sent.
        """
        local = Path(path)
        place = f"{self.folder}/{local.name}"
        push_file(self, local, place, progress)
        return place

    def pull(
        self, place: str, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> Path:
        """Bring a file of the device here; goes on where an interrupted one ended."""
        return pull_file(self, place, Path(path), progress)

    def run(self, words: Sequence[str], timeout: float | None = None) -> Completed:
        """Run a program on the device; its exit status is for the caller to judge."""
        return self.shell(shlex.join(words), timeout)

    def show(self, words: Sequence[str]) -> int:
        """The same with its output, as it comes, on the output of this process."""
        return subprocess.run(self._found(shlex.join(words)), check=False).returncode

    def describe(self) -> Description:
        """What it is, and how warm and how free it is now."""
        done = self.shell(SCRIPT)
        if done.status != 0:
            raise DeviceError(f"{self.name} cannot be described: {done.errors}", "")
        return parse_description(self.name, done.output.decode(errors="replace"))

    def shell(self, script: str, timeout: float | None = None) -> Completed:
        """Run a script of the device's shell."""
        try:
            done = subprocess.run(
                self._found(script),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"{self.name} has not finished within {timeout:g} s", "Give it more time."
            ) from None
        errors = done.stderr.decode(errors="replace").strip()
        self.require_reached(done.returncode, errors)
        return Completed(done.returncode, done.stdout, errors)

    def pipe(self, script: str, *, sends: bool) -> subprocess.Popen[bytes]:
        """A script whose input, or output, is a stream of bytes."""
        return subprocess.Popen(
            self._found(script),
            stdin=subprocess.PIPE if sends else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if sends else subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def require_reached(self, status: int, errors: str) -> None:
        advice = self.lost(status, errors)
        if advice is not None:
            raise DeviceError(f"{self.name} is not reached: {errors or f'status {status}'}", advice)

    def _found(self, script: str) -> list[str]:
        # The device's login shell may be any; what we say is for a plain one.
        command = self.command(f"sh -c {shlex.quote(script)}")
        if which(command[0]) is None:
            raise DeviceError(f"{command[0]} is not installed here", f"{self.name} needs it.")
        return command
