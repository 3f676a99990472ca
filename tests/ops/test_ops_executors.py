"""The op table on executors with memory of their own: the bits of the CPU alone."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from ops.op_table import CASES
from ops.rows_on_target import Joined, TargetRow, first_call
from satchel import _native
from satchel.backends import find_target
from satchel.runtime.program import Instance
from support.arrays import generator


def test_a_row_of_each_op_in_any_place(tmp_path: Path) -> None:
    by_op: dict[str, list[TargetRow]] = defaultdict(list)
    for case in CASES:
        if row := first_call(case):
            by_op[case.op].append(row)
    joined = Joined([rows[len(rows) // 2] for rows in by_op.values()])
    program = joined.export(find_target("cpu"), "fp32", tmp_path / "p.satchel")
    wanted = Instance(program, threads=2).method("forward").run(**joined.inputs)
    ops, random = _native.ops(), generator("places")
    for division in range(5):
        chip = random.integers(0, 3, len(ops)) if division else np.ones(len(ops), int)
        executors = [
            _native.cpu_executor(f"chip{n}", {o for o, c in zip(ops, chip, strict=True) if c == n})
            for n in (1, 2)
        ]
        instance = Instance(program, threads=2, executors=executors)
        names = {part.executor for part in instance.parts}
        assert names == ({"cpu", "chip1"} if division == 0 else {"cpu", "chip1", "chip2"})
        if division == 0:  # the CPU has what only a run tells the size of
            assert {refusal.op for refusal in instance.refusals} == {"nonzero"}
        for got, want in zip(instance.method("forward").run(**joined.inputs), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
