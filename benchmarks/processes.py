"""Runs one measurement in a process of its own and gets its JSON, or the reason why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any


class Failed(Exception):  # noqa: N818 - it reads as what it says in the table
    """The process did not give a result; the message says why in one line."""


def run_json(
    command: list[str], log: Path, environment: dict[str, str] | None = None, limit_s: float = 7200
) -> dict[str, Any]:
    """The JSON object that the command prints; what it says besides goes to the log.

    run_json(["satchel", "doctor", "--json"], Path("doctor.log"))
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {limit_s:.0f} s") from None
        except OSError as error:
            raise Failed(f"cannot start: {error}") from None
    if done.returncode:
        raise Failed(why(done.returncode, done.stdout.decode(errors="replace"), log))
    try:
        document: dict[str, Any] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(f"printed no JSON, see {log}") from None
    return document


def why(status: int, output: str, log: Path) -> str:
    """From a signal's name, Satchel's own error object, or the log's last line."""
    if status < 0:
        return f"stopped by {signal.Signals(-status).name}"
    try:
        return str(json.loads(output)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        # A script that started a tool fails with the tool's name; the tool's own reason is before.
        kept = [line for line in lines if line and "CalledProcessError" not in line]
        named = [line for line in kept if "Error" in line.split(":")[0]]
        signals = [line for line in lines if "died with <Signals." in line]
        reason = (signals or named or kept or [f"exit status {status}"])[-1]
        return reason if len(reason) < 160 else f"{reason[:157]}…"
