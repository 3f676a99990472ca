"""Loads damaged programs, and runs the methods of those that load, in a process of its own.

A crash here ends this process and not the tests. Prints counts as JSON. By hand, for longer, and
best with a native core built with -fsanitize=address,undefined:

    PYTHONPATH=tests python tests/program/attack_worker.py random PROGRAM --seconds 300
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from mutations import mutate
from numpy.typing import NDArray

from satchel.errors import ExecutionError, ProgramFormatError
from satchel.runtime.program import Program
from support import program_file as fm

DTYPES = {"f32": "f4", "f16": "f2", "i32": "i4", "i64": "i8", "i8": "i1", "u8": "u1", "bool": "?"}
LARGEST_INPUT = 1 << 20


def flipped(data: bytes, patterns: tuple[int, ...]) -> Iterator[bytearray]:
    """Every byte of methods and weight index changed, with right checksums."""
    for record in fm.read_records(data):
        if record.kind in ("methods", "weight_index"):
            for at in range(record.offset, record.offset + record.size):
                for pattern in patterns:
                    changed = bytearray(data)
                    changed[at] ^= pattern
                    fm.sign(changed)
                    yield changed


def mutated(programs: list[bytes], rng: random.Random) -> Iterator[bytes]:
    models = [fm.read(data) for data in programs]
    while True:
        try:
            yield fm.write(mutate(rng.choice(models), rng))
        except (struct.error, IndexError, ValueError):  # what the format cannot even say
            continue


def random_input(info: dict[str, Any], sizes: dict[str, int], rng: random.Random) -> NDArray[Any]:
    shape = [sizes[d[0]] if isinstance(d, tuple) else d for d in info["shape"]]
    if np.prod([float(d) for d in shape]) > LARGEST_INPUT:
        raise ExecutionError("too large to try")
    dtype = np.dtype(DTYPES[info["dtype"]])
    if dtype.kind == "b":  # a mask that chooses some, all or none
        share = rng.choice([0.0, 0.5, 0.5, 1.0])
        return np.random.default_rng(rng.randrange(1 << 30)).random(shape) < share
    if dtype.kind == "f":
        special = rng.choice([0.0, 1e30, -1e30, np.nan, np.inf])
        values = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(shape)
        return np.where(values > 2.5, special, values).astype(dtype)
    if dtype.kind == "i" and dtype.itemsize >= 4 and rng.random() < 0.3:
        edges = [-1, -(1 << 31), (1 << 31) - 1, 7, 11, 12, 13, 100, 1 << 30]
        return np.full(shape, rng.choice(edges), dtype)
    return np.full(shape, rng.choice([0, 0, 0, 1, 3]), dtype)


def size_of(name: str, plain: dict[str, int]) -> int:
    """A size by its name, which says how it is computed from plain ones: ``s *t +2 /3``."""
    base, *steps = name.split(" ")
    size = plain.get(base, 1)
    for step in steps:
        other = 1
        for factor in step[1:].split("*"):
            other *= int(factor) if factor.isdigit() else plain.get(factor, 1)
        kinds = {"*": size * other, "+": size + other, "-": size - other}
        size = size // other if step[0] == "/" else kinds[step[0]]
    return size


def follow_each_other(arrays: list[NDArray[Any]], infos: list[dict[str, Any]]) -> None:
    """Tokens of one sequence in order, as a tree if it has parents, which is rare by chance."""
    for array, info in zip(arrays, infos, strict=True):
        if array.dtype == np.int32 and info["name"] in ("sequence", "of"):
            array[...] = 0
        elif array.dtype == np.int32 and info["name"] in ("position", "parents") and array.size:
            array[...] = np.arange(array.size).reshape(array.shape)
            array[...] -= info["name"] == "parents"


def run_methods(program: Program, rng: random.Random) -> int:
    """Calls every method with inputs of the right shape; how many calls returned."""
    ran = 0
    try:
        instance = program.instance(threads=rng.choice([1, 1, 2]))
    except ExecutionError:  # it asks for more memory than there is
        return 0
    for info in program.methods:
        method = instance.method(info["name"])
        bounds = {d[0]: d[1] for v in info["inputs"] for d in v["shape"] if isinstance(d, tuple)}
        for size in ("smallest", "largest", "any"):
            plain = {
                name: {"smallest": 1, "largest": most, "any": rng.randint(1, most)}[size]
                for name, most in bounds.items()
            }
            sizes = {name: size_of(name, plain) for name in bounds}
            try:
                inputs = [random_input(v, sizes, rng) for v in info["inputs"]]
                if rng.random() < 0.7:
                    follow_each_other(inputs, info["inputs"])
                method(*inputs)
                ran += 1
            except ExecutionError:
                pass
    return ran


def attack(files: Iterator[bytes | bytearray], folder: Path, seconds: float, count: int) -> int:
    rng = random.Random(1)
    path = folder / "attacked.satchel"
    totals = {"files": 0, "refused": 0, "loaded": 0, "ran": 0, "slowest": 0.0}
    end = time.monotonic() + seconds
    for data in files:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        begin = time.monotonic()
        try:
            program = Program(path)
            totals["loaded"] += 1
            totals["ran"] += run_methods(program, rng)
        except ProgramFormatError as error:
            assert error.section in fm.KINDS and error.message and error.advice, repr(error)
            totals["refused"] += 1
        totals["slowest"] = max(totals["slowest"], time.monotonic() - begin)
        totals["files"] += 1
        if totals["files"] >= count or time.monotonic() > end:
            break
    print(json.dumps(totals))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["flip", "random"])
    parser.add_argument("programs", type=Path, nargs="+", metavar="PROGRAM")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--count", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    programs = [path.read_bytes() for path in options.programs]
    files: Iterator[bytes | bytearray]
    if options.kind == "flip":
        files = chain.from_iterable(flipped(data, (0x01, 0x80, 0xFF)) for data in programs)
    else:
        files = mutated(programs, random.Random(options.seed))
    folder = options.folder or options.programs[0].parent
    os.makedirs(folder, exist_ok=True)
    return attack(files, folder, options.seconds, options.count)


if __name__ == "__main__":
    sys.exit(main())
