"""A driver that fails, in the middle of everything: an error that says so, and the CPU goes on.

No driver fails on request. ``support/vulkan_faults.c`` stands before the real library and lets any
call of it fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import satchel
from support.tiny_llm import write_tiny_llm

_SOURCE = Path(__file__).parents[2] / "support" / "vulkan_faults.c"

_WITH_FAULTS = """
import ctypes, sys
import numpy as np
from satchel.errors import ExecutionError
from satchel.llm.sampling import SamplingOptions
from satchel.llm.session import Session
from satchel.runtime.program import Program

faults = ctypes.CDLL("libvulkan.so.1")
faults.fail.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int32)
faults.names.restype = ctypes.c_char_p
faults.calls_of.restype = ctypes.c_long
FULL, LOST, NEVER_DONE = -2, -4, 1000
PROMPT = list(range(3, 15))
LATE = {b"vkAllocateMemory", b"vkCreateComputePipelines", b"vkQueueSubmit"}
LATE |= {b"vkResetFences", b"vkWaitForFences"}

def answer(target):
    session = Session(Program(sys.argv[1], target=target))
    logits = session.feed(PROMPT)
    if session.chooses_tokens:
        return logits, session.chain(5, SamplingOptions(0.0), [0.0] * 3)
    tokens = [5]
    for _ in range(3):
        tokens.append(int(session.feed(tokens[-1:]).argmax()))
    return logits, tokens[1:]

def same(a, b):
    return (a[0] == b[0]).all() and a[1] == b[1]

def error_of(run):
    try:
        run()
    except ExecutionError as error:
        return str(error)
    finally:
        faults.fail(b"", 0, 0)
    return None

"""

_EVERYWHERE = """
want, good = answer("cpu"), answer("vulkan")
names = faults.names().split()
before = [faults.calls_of(name) for name in names]
assert same(answer("vulkan"), good)
counts = [faults.calls_of(name) - calls for name, calls in zip(names, before)]
told = 0
for name, calls in zip(names, counts):
    places = [(0, FULL)] if calls else []
    if name in LATE:
        places.append((calls - 1, LOST))
    for failing, result in places:
        faults.fail(name, failing, result)
        said = error_of(lambda: answer("vulkan"))
        if said is None:
            # What is kept for the next time is not needed; weights not shared are copied.
            assert b"PipelineCache" in name or b"HostPointer" in name, (name, failing)
            continue
        told += 1
        assert "GPU" in said, (name, failing, said)
        assert ("memory is full" if result == FULL else "lost") in said, (name, said)
        assert "--target cpu" in said, (name, said)
assert told > 22, told
assert same(answer("cpu"), want) and same(answer("vulkan"), good)
print("done")
"""

_LOST = """
session = Session(Program(sys.argv[1], target="vulkan"))
good = session.feed(PROMPT)
faults.fail(b"vkQueueSubmit", 0, LOST)
assert "lost" in error_of(lambda: session.feed([5]))
# The driver is as new, but what the device held is gone: nobody may go on with it.
for _ in range(2):
    assert "lost" in error_of(lambda: session.feed([5]))
assert (Session(Program(sys.argv[1], target="vulkan")).feed(PROMPT) == good).all()
print("done")
"""

_FULL = """
session = Session(Program(sys.argv[1], target="vulkan"))
session.feed(PROMPT[:4])
faults.fail(b"vkAllocateMemory", 0, FULL)
said = error_of(lambda: session.feed(PROMPT * 40))
assert "memory is full" in said and "smaller context" in said, said
session.rewind(0)
again = session.feed(PROMPT)
assert (again == Session(Program(sys.argv[1], target="vulkan")).feed(PROMPT)).all()
print("done")
"""

_IN_VAIN = """
want = answer("vulkan")
taken = faults.turns()
assert taken > 0
# From the beginning: the device is tried, and not trusted.
faults.make_turns_wait_in_vain(1)
assert same(answer("vulkan"), want)
tried = faults.turns() - taken
assert 0 < tried < taken
# In the middle: what has waited in vain is done again, and then without turns.
faults.make_turns_wait_in_vain(0)
session = Session(Program(sys.argv[1], target="vulkan"))
faults.make_turns_wait_in_vain(1)
logits = session.feed(PROMPT)
assert (logits == want[0]).all() and session.chain(5, SamplingOptions(0.0), [0.0] * 3) == want[1]
taken = faults.turns()
again = session.fork(len(PROMPT))
assert again.chain(5, SamplingOptions(0.0), [0.0] * 3) == want[1] and faults.turns() == taken
print("done")
"""

_HANGS = """
import os, time
session = Session(Program(sys.argv[1], target="vulkan"))
session.feed(PROMPT)
os.environ["SATCHEL_VULKAN_PATIENCE"] = "0.2"
faults.fail(b"vkQueueSubmit", 0, NEVER_DONE)
started = time.perf_counter()
assert "does not answer" in error_of(lambda: session.feed([5]))
assert 0.1 < time.perf_counter() - started < 30
assert "lost" in error_of(lambda: session.feed([5]))
del session  # does not wait for what never ends
os.environ["SATCHEL_VULKAN_PATIENCE"] = "100"
answer("cpu"), answer("vulkan")
print("done")
"""

_TAKEN = """
from satchel import _native

def memory():
    return _native.vulkan.devices()[0]

before = memory()
assert 0 < before["memory_left_bytes"] <= before["memory_bytes"], before
faults.take_memory.argtypes = (ctypes.c_uint64,)
faults.take_memory(1 << 62)
assert memory() == {**before, "memory_left_bytes": 0}
assert "0.0 kB of memory left" in error_of(lambda: answer("vulkan"))
answer("cpu")
faults.take_memory(0)
answer("vulkan")
print("done")
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    return satchel.export(
        write_tiny_llm(folder / "tiny"),
        folder / "p.satchel",
        recipe="8da4w",
        context=512,
        prefill_ar_len=80,
    )


@pytest.fixture(scope="module")
def faulty(device: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose libvulkan can be told to fail."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("there is no C compiler for the library that fails")
    mapped = Path("/proc/self/maps").read_text().split()
    real = next(word for word in mapped if "/libvulkan.so" in word)
    folder = tmp_path_factory.mktemp("library")
    library = folder / "libvulkan.so.1"
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(_SOURCE)]
    subprocess.run([*command, "-o", str(library)], check=True)
    others = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder}:{others}" if others else str(folder),
        "SATCHEL_TEST_VULKAN": real,
    }


def run_script(script: str, program: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(_EVERYWHERE, id="every_function"),
        pytest.param(_LOST, id="lost"),
        pytest.param(_TAKEN, id="memory_of_others"),
        pytest.param(_FULL, id="full"),
        pytest.param(_HANGS, id="hangs"),
        pytest.param(_IN_VAIN, id="waits_in_vain"),
    ],
)
def test_faults_are_told_and_nothing_else_breaks(
    what: str, program: Path, faulty: dict[str, str]
) -> None:
    run_script(_WITH_FAULTS + what, program, faulty)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("vkAllocateMemory:3:-2", "memory is full"),
        ("vkQueueSubmit:4:-4", "the device was lost"),
        ("vkCreateDevice:0:-3", "opening"),
    ],
)
def test_a_command_ends_with_one_line(
    fault: str, said: str, program: Path, faulty: dict[str, str]
) -> None:
    words = ["run", str(program), "--raw", "-p", "hi", "--max-new-tokens", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "satchel", *words, "--target", "vulkan"],
        env={**faulty, "SATCHEL_TEST_FAULT": fault},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr, done.stderr


_TWO_AT_ONCE = """
import sys
from satchel.llm.session import Session
from satchel.runtime.program import Program
sys.stdin.readline()
for _ in range(2):
    session = Session(Program(sys.argv[1], target="vulkan"))
    tokens = [int(session.feed(list(range(3, 15))).argmax())]
    for _ in range(4):
        tokens.append(int(session.feed(tokens[-1:]).argmax()))
print(tokens)
"""


def test_processes_share_a_device_and_its_kept_pipelines(
    device: dict[str, Any], program: Path, tmp_path: Path
) -> None:
    """They begin at the same time, without any pipelines; one is killed in between."""
    environment = {**os.environ, "SATCHEL_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _TWO_AT_ONCE, str(program)]
    processes = [
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    processes[0].kill()
    texts = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes[1:]] == [0, 0]
    assert texts[1] == texts[2] != ""
    (kept,) = (tmp_path / "cache" / "vulkan").glob("*.pipelines")
    assert kept.stat().st_size >= 64
