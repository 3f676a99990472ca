"""Runs one measurement in a process of its own and gets its JSON, or the reason why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Failed(Exception):  # noqa: N818 - it reads as what it says in the table
    """The process did not give a result; the message says why in one line."""

    def __init__(self, message: str, kind: str = "Failed", advice: str = "") -> None:
        super().__init__(message)
        self.kind, self.advice = kind, advice


def run_json(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    limit_s: float = 7200,
    hold: Sequence[int] = (),
) -> dict[str, Any]:
    """The JSON object that the command prints; what it says besides goes to the log.

    Files of the numbers ``hold`` stay open in the process: a lock lasts as long as it lives.

    run_json(["satchel", "doctor", "--json"], Path("doctor.log"))
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                timeout=limit_s,
                pass_fds=hold,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {limit_s:.0f} s", "Timeout") from None
        except OSError as error:
            raise Failed(f"cannot start: {error}") from None
    if done.returncode:
        raise reason(done.returncode, done.stdout.decode(errors="replace"), log)
    try:
        document: dict[str, Any] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(f"printed no JSON, see {log}") from None
    return document


def reason(status: int, output: str, log: Path) -> Failed:
    """From a signal's name, Satchel's own error object, or the log's last line."""
    if status < 0:
        name = signal.Signals(-status).name
        return Failed(f"stopped by {name}", name)
    try:
        error = json.loads(output)["error"]
        return Failed(str(error["message"]), str(error["type"]), str(error["advice"]))
    except (ValueError, KeyError, TypeError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        # A script that started a tool fails with the tool's name; the tool's own reason is before.
        kept = [line for line in lines if line and "CalledProcessError" not in line]
        named = [line for line in kept if "Error" in line.split(":")[0]]
        signals = [line for line in lines if "died with <Signals." in line]
        words = (signals or named or kept or [f"exit status {status}"])[-1]
        return Failed(words if len(words) < 160 else f"{words[:157]}…")
