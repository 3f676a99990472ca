"""Calls of programs as a file for ``native/tests/program_run.cpp``, and what it answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DTYPES = {
    "f32": "<f4",
    "f16": "<f2",
    "i32": "<i4",
    "i64": "<i8",
    "i8": "i1",
    "u8": "u1",
    "bool": "?",
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


@dataclass
class Job:
    """A program, and the calls that one instance of it gets: a method's name and its inputs."""

    program: Path
    calls: Sequence[tuple[str, Sequence[Array]]]

    def to_bytes(self) -> bytes:
        parts = [f"program {self.program}\n".encode()]
        for method, inputs in self.calls:
            parts.append(f"call {method}\n".encode())
            for array in inputs:
                dims = " ".join(str(d) for d in array.shape)
                parts.append(f"array {NAMES[array.dtype]} {dims}\n".encode())
                parts.append(np.ascontiguousarray(array).tobytes() + b"\n")
            parts.append(b"end\n")
        return b"".join(parts)


@dataclass
class Answer:
    """What a program's calls gave: the outputs of each, or the error."""

    kernels: str = ""
    calls: list[list[Array] | str] = field(default_factory=list)


def run_jobs(command: Sequence[str], jobs: Sequence[Job], folder: Path, isa: str) -> list[Answer]:
    """Runs all jobs in one process, on two threads, with one set of kernels."""
    asked, answered = folder / "jobs", folder / f"results.{isa}"
    asked.write_bytes(b"".join(job.to_bytes() for job in jobs))
    done = subprocess.run(
        [*command, str(asked), str(answered)],
        # Copies of weights would be made by a thread of their own.
        env={**os.environ, "SATCHEL_ISA": isa, "SATCHEL_HUGE_PAGES": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return read_answers(answered.read_bytes())


def read_answers(data: bytes) -> list[Answer]:
    answers: list[Answer] = []
    outputs: list[Array] = []
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        word, *rest = data[at:end].decode().split(" ")
        at = end + 1
        if word == "program":
            answers.append(Answer(rest[0]))
        elif word == "call":
            outputs = []
            answers[-1].calls.append(outputs)
        elif word == "array":
            shape = tuple(int(d) for d in rest[1:])
            dtype = np.dtype(DTYPES[rest[0]])
            size = int(np.prod(shape)) * dtype.itemsize
            outputs.append(np.frombuffer(data[at : at + size], dtype).reshape(shape))
            at += size + 1
        elif word == "error":
            answers[-1].calls.append(" ".join(rest))
        else:
            assert word == "end", word
    return answers
