"""One pool of threads for all instances of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from satchel.encodings.encoding import Encoding
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Sym
from satchel.runtime.program import Instance, Program, load
from support.arrays import normal
from support.programs import write_program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    b = GraphBuilder("forward")
    x = b.input("x", (Sym("S", 80), 256))
    for layer in range(4):
        x = b.softmax(b.linear(x, b.weight(f"w{layer}", (256, 256)), activations="int8"), axis=-1)
    b.output(x, "y")
    weights = {f"w{layer}": normal(256, 256, seed=layer) for layer in range(4)}
    path = tmp_path_factory.mktemp("threads") / "p.satchel"
    encodings = dict.fromkeys(weights, Encoding("matrix_q4", 32))
    return load(write_program(path, [b.finish()], weights, encodings))


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads in /proc")
def test_instances_share_threads(program: Program) -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    instances = [Instance(program, threads=7) for _ in range(5)]
    assert threads() == before + 6
    x = normal(20, 256)
    first = instances[0].method("forward")(x)
    for instance in instances[1:]:
        np.testing.assert_array_equal(instance.method("forward")(x), first)
    del instance, instances
    assert threads() == before


def test_at_the_same_time_as_alone(program: Program) -> None:
    """Whoever finds the threads busy goes on alone, and has the same bits."""
    inputs = [normal(rows, 256, seed=rows) for rows in (1, 9, 40, 80)]
    alone = [np.asarray(Instance(program, threads=1).method("forward")(x)) for x in inputs]

    def work(number: int) -> None:
        method = Instance(program, threads=3).method("forward")
        for call in range(40):
            which = (number + call) % len(inputs)
            np.testing.assert_array_equal(method(inputs[which]), alone[which])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_who_waits_burns_no_core(program: Program) -> None:
    method = Instance(program, threads=4).method("forward")
    method(normal(80, 256))
    time.sleep(0.05)  # in which threads may still look for the next piece of work
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_computes_and_ends(program: Program) -> None:
    """It has none of the threads that its parent's pool and instances are used to.

    Ten of them, since they hang or not by where the parent's threads were: going to sleep, or on.
    """
    script = """
import os, sys
import numpy as np
from satchel.runtime.program import Instance, Program

program = Program(sys.argv[1])
before = Instance(program, threads=3)
x = np.random.default_rng(0).standard_normal((20, 256), np.float32)
threads = lambda: len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 3
for _ in range(10):
    want = before.method("forward")(x)
    child = os.fork()
    if child == 0:
        assert threads() in (1, 3)
        after = Instance(program, threads=3)
        assert threads() == 3
        for instance in (before, after):
            assert (instance.method("forward")(x) == want).all()
        assert threads() == 3
        sys.exit()  # with all that it has inherited
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""
    command = [sys.executable, "-c", script, str(program.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
