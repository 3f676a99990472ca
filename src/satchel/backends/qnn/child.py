"""Starts the process that runs Qualcomm's libraries and talks with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import satchel
from satchel import errors
from satchel.backends.qnn.codes import find_cause, find_code
from satchel.backends.qnn.frames import Array, Message, receive, send
from satchel.backends.qnn.settings import Settings
from satchel.backends.qnn.vendor import require_packages
from satchel.errors import BackendError, SatchelError

Model = tuple[str, Path, Path | None]  # a key, the model, and where its binary goes


class Child:
    """A worker process; use it with ``with``, or call ``close``."""

    def __init__(self) -> None:
        require_packages()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        package = str(Path(satchel.__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "satchel.backends.qnn.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path},
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin and self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def compile(
        self,
        models: Sequence[Model],
        target: str,
        share: bool = False,
        settings: Settings | None = None,
    ) -> Message:
        """Compile models, into one binary if they ``share`` weights."""
        listed = [[key, str(model), str(to) if to else None] for key, model, to in models]
        how = {"share": share, "settings": (settings or Settings()).to_dict()}
        message, _ = self.ask("compile", {"models": listed, "target": target, **how})
        return message

    @property
    def peak_memory(self) -> int:
        """The most that the process has taken so far, in bytes."""
        return int(self.ask("peak", {})[0]["peak_bytes"])

    def run(self, key: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return self.ask("run", {"key": key}, arrays)[1]

    def ask(
        self, command: str, message: Mapping[str, Any], arrays: Mapping[str, Array] | None = None
    ) -> tuple[Message, dict[str, Array]]:
        """Send a command and wait for what comes back; its error is raised here."""
        assert self._process.stdin and self._process.stdout
        answer = None
        with suppress(BrokenPipeError):
            send(self._process.stdin, {"command": command, **message}, arrays or {})
            answer = receive(self._process.stdout)
        if answer is None:
            raise self._crash(command)
        if "error" in answer[0]:
            raise _raised(answer[0])
        return answer

    def _crash(self, command: str) -> SatchelError:
        status = self._process.wait()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        code = find_code(log)
        ended = f"ended with the status {status}"
        if status < 0:
            with suppress(ValueError):
                ended = f"was ended by {signal.Signals(-status).name}"
        cause = find_cause(log)
        advice = cause.advice if cause else "Satchel itself is unharmed; try again."
        if status == -signal.SIGKILL:
            advice = "The machine ran out of memory; use a larger --num-sharding."
        last = next((line for line in reversed(log.splitlines()) if line.strip()), "")
        said = f" after it said: {' '.join(last.split())[:200]}" if last else ""
        return BackendError(
            f"the process that runs Qualcomm's library {ended} in {command!r}{said}", advice, code
        )


def _raised(answer: Message) -> SatchelError:
    if answer["error"] == BackendError.__name__:
        return BackendError(answer["message"], answer["advice"], answer["code"])
    kind: type[SatchelError] = getattr(errors, answer["error"], SatchelError)
    return kind(answer["message"], answer["advice"])
