"""The child process in which Qualcomm's libraries run: ``python -m satchel.backends.qnn.worker``.

It answers commands until its input ends. If a library crashes, only this process is lost.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from satchel.backends.qnn.binary_info import read_binary
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.codes import vendor_error
from satchel.backends.qnn.frames import Array, Message, receive, send
from satchel.backends.qnn.loaded import load_program
from satchel.backends.qnn.profile import ProfileFiles
from satchel.backends.qnn.runner import Runner
from satchel.backends.qnn.settings import Settings
from satchel.backends.qnn.vendor import open_session
from satchel.errors import SatchelError
from satchel.machine import peak_rss

Arrays = dict[str, Array]
_DOING = {"compile": "compiling for", "load": "loading for"}


class Worker:
    def __init__(self) -> None:
        self._sessions: dict[str, Any] = {}
        self._program: Runner | None = None
        self._profile: ProfileFiles | None = None

    def compile(self, message: Message, _: Arrays) -> tuple[Message, Arrays]:
        """Compile models into one binary, or each into its own. They can be run here then."""
        models, chip = message["models"], find_chip(message["target"])
        share = bool(message["share"]) and len(models) > 1
        settings = Settings.read(message["settings"])
        seconds = []
        for number, (key, model, context) in enumerate(models):
            started = time.perf_counter()
            last = number == len(models) - 1
            self._sessions[key] = open_session(
                Path(model),
                chip,
                Path(context) if context else None,
                ("last" if last else "more") if share else None,
                settings,
            )
            seconds.append(time.perf_counter() - started)
        processor = time.process_time()
        return {"seconds": seconds, "processor_s": processor}, {}

    def peak(self, _: Message, __: Arrays) -> tuple[Message, Arrays]:
        """The most memory that this process has taken."""
        return {"peak_bytes": peak_rss()}, {}

    def run(self, message: Message, arrays: Arrays) -> tuple[Message, Arrays]:
        session = self._sessions[message["key"]]
        names = [output.name for output in session.get_outputs()]
        results = session.run(names, arrays)
        return {}, dict(zip(names, map(np.asarray, results), strict=True))

    def load(self, message: Message, _: Arrays) -> tuple[Message, Arrays]:
        """Open a program, with whatever of it must be compiled first."""
        self._program = None  # one at a time: a chip has little room
        self._profile = ProfileFiles(Path(message["profile"])) if message.get("profile") else None
        self._program = load_program(
            Path(message["program"]), message["target"], Path(message["folder"]), self._profile
        )
        return {}, {}

    def profile(self, _: Message, __: Arrays) -> tuple[Message, Arrays]:
        """Calls and cycles of each op since this was asked last."""
        assert self._profile is not None
        return {"ops": self._profile.take()}, {}

    def contents(self, message: Message, _: Arrays) -> tuple[Message, Arrays]:
        """What a binary says of itself."""
        return read_binary(Path(message["binary"])), {}

    def call(self, message: Message, arrays: Arrays) -> tuple[Message, Arrays]:
        """Call a method of the program."""
        assert self._program is not None
        return {}, self._program.run(message["method"], arrays)

    def answer(self, message: Message, arrays: Arrays) -> tuple[Message, Arrays]:
        command: Callable[[Message, Arrays], tuple[Message, Arrays]]
        command = getattr(self, message["command"])
        try:
            return command(message, arrays)
        except SatchelError as error:
            return _failure(error), {}
        except Exception as error:  # whatever the vendor's library raises
            doing = _DOING.get(message["command"], "running on")
            chip = message.get("target", "the NPU")
            return _failure(vendor_error(f"{doing} {chip}", str(error))), {}


def _failure(error: SatchelError) -> Message:
    return {
        "error": type(error).__name__,
        "message": error.message,
        "advice": error.advice,
        "code": getattr(error, "code", None),
    }


def main() -> None:
    # The libraries print what they like; only answers may go where answers are read.
    answers: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    worker = Worker()
    while True:
        received = receive(sys.stdin.buffer)
        if received is None:
            return
        send(answers, *worker.answer(*received))


if __name__ == "__main__":
    main()
