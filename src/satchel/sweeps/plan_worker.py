"""A process that plans exports: each in a fork of its own, so that what one takes is told alone.

    python -m satchel.sweeps.plan_worker < calls.json

Reads a list of the arguments of ``satchel export --plan --json`` and prints the objects, a line
each. A fork begins with what all exports need, which spares the time of starting Python.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from typing import Any

from satchel.cli.main import main


def plan(arguments: list[str]) -> dict[str, Any]:
    """What one call prints."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            # Nothing of the parent's is to be flushed or cleaned up a second time.
            status = 1
            try:
                status = main(arguments)
                sys.stdout.flush()
            finally:
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        try:
            document: dict[str, Any] = json.loads(output.read())
        except ValueError:
            how = f"stopped by {signal.Signals(status).name}" if 0 < status < 64 else "no plan"
            return {"error": {"type": "Failed", "message": how, "advice": ""}}
        return document


if __name__ == "__main__":
    import satchel.exporter  # noqa: F401  (before the forks)

    for call in json.load(sys.stdin):
        print(json.dumps(plan(call)), flush=True)
