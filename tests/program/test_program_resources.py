"""Time and memory in proportion to the file, and faults that come from outside while it is used."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from satchel.errors import ProgramFormatError
from satchel.runtime.program import Program
from support import program_file as fm
from support.program_file import ARENA, INPUT, Method, Model, Node, Value

# What a hash table of the C++ library has as its number of places for 20,754 to 42,043 entries.
PLACES = 42043


def chain(nodes: int, apart: int, shape: list[int] | None = None) -> Model:
    """``abs`` of ``abs`` of …, each result at a place of its own in the arena."""
    shape = shape or [1]
    values = [Value("x", INPUT, 0, 0, shape)]
    values += [Value(f"v{i}", ARENA, i * apart, 0, shape) for i in range(nodes)]
    calls = [Node("abs", [i], [i + 1], []) for i in range(nodes)]
    arena = (nodes - 1) * apart + 4096
    symbols = [("S", 64)] if shape[0] < 0 else []
    return Model(methods=[Method("f", arena, symbols, values, [0], [nodes], calls)])


def load_seconds(path: Path) -> float:
    best = 1e9
    for _ in range(2):
        begin = time.perf_counter()
        Program(path)
        best = min(best, time.perf_counter() - begin)
    return best


def test_places_that_collide_in_a_hash_table_take_no_longer(tmp_path: Path) -> None:
    plain, hostile = tmp_path / "plain.satchel", tmp_path / "hostile.satchel"
    plain.write_bytes(fm.write(chain(40_000, 256)))
    hostile.write_bytes(fm.write(chain(40_000, 256 * PLACES)))
    assert load_seconds(hostile) < 4 * load_seconds(plain) + 0.2


def test_a_call_whose_wanted_row_changes_takes_time_in_proportion(tmp_path: Path) -> None:
    model = chain(40_000, 256, [-1, 1])
    method = model.methods[0]
    method.values += [Value("r", INPUT, 1, 2, [1]), Value("y", ARENA, method.arena, 0, [1, 1])]
    method.arena += 256
    method.inputs, method.outputs = [0, 40_001], [40_002]
    method.nodes = [Node("add", [i, i], [i + 1], []) for i in range(40_000)]
    method.nodes.append(Node("take_rows", [40_000, 40_001], [40_002], []))
    path = tmp_path / "rows.satchel"
    path.write_bytes(fm.write(model))
    call = Program(path).instance(threads=1).method("f")
    seconds = []
    for row in (40, 41, 42):
        begin = time.perf_counter()
        call(np.ones([64, 1], np.float32), np.array([row], np.int32))
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 10 * load_seconds(path) + 0.2


def run(script: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *paths],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


MEMORY = """
import sys
from satchel.runtime.program import Program
def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
Program(sys.argv[1])
before = most()
program = Program(sys.argv[2])
print(most() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is read from /proc")
@pytest.mark.parametrize(("reused", "times"), [(False, 12), (True, 8)])
def test_memory_for_many_small_nodes(reused: bool, times: int, tmp_path: Path) -> None:
    small, large = tmp_path / "small.satchel", tmp_path / "large.satchel"
    small.write_bytes(fm.write(chain(10, 256)))
    model = chain(2 if reused else 100_000, 256)
    if reused:  # so that nodes are all there is
        model.methods[0].nodes += [Node("abs", [0], [2], []) for _ in range(200_000)]
    large.write_bytes(fm.write(model))
    assert int(run(MEMORY, small, large).stdout) < times * large.stat().st_size


CHANGE = """
import sys, time
import numpy as np
rows = np.memmap(sys.argv[1], np.int32, "r+")
while True:
    rows[-1] = 1 << 30
    time.sleep(1e-4)
    rows[-1] = 0
    time.sleep(1e-4)
"""
RACE = """
import sys, time
import numpy as np
from satchel.errors import ExecutionError
from satchel.runtime.program import Program
call = Program(sys.argv[1]).instance(threads=1).method("f")
rows = np.memmap(sys.argv[2], np.int32, "r+")
end, ran, refused = time.monotonic() + 4, 0, 0
while time.monotonic() < end:
    try:
        call(rows)
        ran += 1
    except ExecutionError:
        refused += 1
print(ran, refused)
"""


def test_an_input_that_another_process_changes_is_read_once(tmp_path: Path) -> None:
    """In memory that both have: between its check and its use, a number of a row changes."""
    weight = fm.Weight("w", 16, [16, 512], 0, 0, 16 * 512 * 4, 0, 0, bytes(32))
    values = [
        Value("rows", INPUT, 0, 2, [4096]),
        Value("w", fm.WEIGHT, 0, 0, [16, 512]),
        Value("y", ARENA, 0, 0, [4096, 512]),
    ]
    nodes = [Node("embedding", [0, 1], [2], [])]
    method = Method("f", 4096 * 512 * 4, [], values, [0], [2], nodes)
    model = Model(methods=[method], weights=[weight], weight_bytes=bytes(16 * 512 * 4))
    path = tmp_path / "take.satchel"
    path.write_bytes(fm.write(model))
    rows = tmp_path / "rows"
    rows.write_bytes(bytes(4096 * 4))
    with subprocess.Popen([sys.executable, "-c", CHANGE, rows]) as other:
        done = run(RACE, path, rows)
        other.kill()
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    ran, refused = map(int, done.stdout.split())
    assert ran > 10 and refused > 10


CUT = """
import os, sys
import numpy as np
from satchel.errors import ProgramFormatError
from satchel.runtime.program import Program
program = Program(sys.argv[1])
method = program.instance(threads=2).method("f")
os.truncate(sys.argv[1], 4096)
for _ in range(2):
    try:
        method(np.ones([1, 256], np.float32))
    except ProgramFormatError as error:
        print(error)
    else:
        raise SystemExit("it ran")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be cut there")
def test_a_file_that_is_cut_short_while_it_is_used_is_an_error(tmp_path: Path) -> None:
    weight = fm.Weight("w", 16, [256, 256], 0, 0, 256 * 256 * 4, 0, 0, bytes(32))
    values = [
        Value("x", INPUT, 0, 0, [1, 256]),
        Value("w", fm.WEIGHT, 0, 0, [256, 256]),
        Value("y", ARENA, 0, 0, [1, 256]),
    ]
    nodes = [Node("linear", [0, 1], [2], [])]
    method = Method("f", 1024, [], values, [0], [2], nodes)
    model = Model(methods=[method], weights=[weight], weight_bytes=bytes(256 * 256 * 4))
    path = tmp_path / "cut.satchel"
    path.write_bytes(fm.write(model))
    done = run(CUT, path)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout.count("was cut short") == 2 and "Copy or export it again" in done.stdout


def test_absurd_counts_are_refused_before_anything_is_reserved(tmp_path: Path) -> None:
    data = bytearray(fm.write(chain(1, 256)))
    at = data.index(b"\x03\x00abs") - 4
    data[at : at + 4] = (0x0FFFFFFF).to_bytes(4, "little")
    fm.sign(data)
    path = tmp_path / "count.satchel"
    path.write_bytes(data)
    with pytest.raises(ProgramFormatError, match="claims 268435455 entries"):
        Program(path)
