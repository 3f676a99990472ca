"""The rows of the op table whose op has a shader, checked against the reference on whatever device
is first. As a command, in a process whose environment chooses the driver and who watches it:

    cd tests && python -m backends.vulkan.rows sample    # or names of ops: all rows of them
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ops.op_table import CASES
from ops.rows_on_target import Joined, TargetRow
from satchel import _native
from satchel.runtime.program import Instance, Program
from support.compare import assert_close
from support.op_case import Input, OpCase, State
from support.programs import write_program

# The ops that shaders exist for, and what a row of the table may have that they do not take.
OPS = {
    *("linear", "embedding", "cache_write", "cache_move", "attention"),
    *("expert_linear", "matmul", "argsort", "gather"),
    *("rms_norm", "layer_norm", "softmax", "rope_table", "rope", "take_rows"),
    *("add", "sub", "mul", "div", "silu_mul", "gelu_tanh_mul", "affine", "clamp"),
    *("neg", "abs", "exp", "sqrt", "rsqrt", "relu", "hardswish", "hardsigmoid", "silu"),
    *("gelu", "gelu_tanh", "sigmoid", "tanh", "reshape", "transpose", "slice", "concat", "take"),
    *("conv2d", "conv_transpose2d", "qconv2d", "qlinear", "max_pool2d", "avg_pool2d"),
    *("quantize", "dequantize", "lookup", "qadd", "qmul", "qmean"),
    *("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"),
    *("attention_full", "attention_qkv", "qattention_qkv"),
}
# Shaders divide and take roots and powers to a few units in the last place, not to the last.
_LOOSER = 4.0
# Rows of a program: some drivers take hundreds of megabytes for each shader that they compile.
_TOGETHER = 24


def on_device(program: Program) -> Instance:
    return Instance(program, threads=1, executors=[_native.vulkan.executor(0)])


def _has_state(case: OpCase) -> bool:
    return any(isinstance(slot, State) for slot in case.slots)


def _row(case: OpCase) -> TargetRow:
    given = iter(case.calls[0])
    slots = tuple(
        replace(slot, shape=next(given).shape) if isinstance(slot, Input) else slot
        for slot in case.slots
    )
    return TargetRow(replace(case, slots=slots, calls=case.calls[:1]), case.calls[0])


def _has_tiny(case: OpCase) -> bool:
    """Numbers that a device may take for zero."""
    floats = [a for a in case.calls[0] if a.dtype == np.float32]
    return any(((a != 0) & (np.abs(a) < np.finfo(np.float32).tiny)).any() for a in floats)


def _rows() -> dict[str, list[TargetRow]]:
    rows: dict[str, list[TargetRow]] = defaultdict(list)
    for case in CASES:
        empty = any(array.size == 0 for array in case.calls[0])
        if case.op in OPS and not (_has_state(case) or _has_tiny(case) or empty):
            rows[case.op].append(_row(case))
    return rows


ROWS = _rows()
WITH_STATES = [case for case in CASES if case.op in OPS and _has_state(case)]


def check_op(op: str, folder: Path) -> None:
    rows, refused = ROWS[op], 0
    for first in range(0, len(rows), _TOGETHER):
        refused += check_rows(rows[first : first + _TOGETHER], folder / f"{op}{first}.satchel")
    assert refused < len(rows), op


def check_rows(rows: Sequence[TargetRow], path: Path) -> int:
    """How many nodes are the CPU's."""
    joined = Joined(rows)
    arrays = {name: slot.array for name, slot in joined.weights.items()}
    encodings = {name: slot.encoding for name, slot in joined.weights.items()}
    instance = on_device(Program(write_program(path, [joined.graph], arrays, encodings)))
    for part in instance.parts:
        assert part.executor in ("vulkan", "cpu")
    for _ in range(2):  # the same places again
        got = instance.method("forward").run(**joined.inputs)
        for row, array in zip(rows, got, strict=True):
            (want,) = row.case.run_reference()
            assert array.dtype == want.dtype, row.case.id
            assert_close(array, want, row.case.tolerance * _LOOSER, row.case.id)
    return sum(refusal.nodes for refusal in instance.refusals)


def check_with_states(case: OpCase, path: Path) -> None:
    program = Program(case.write(path))
    instance = on_device(program)
    # Rows of caches that are no whole words are the CPU's.
    whole = all(s["bytes"] // int(np.prod(s["shape"][:-1])) % 4 == 0 for s in program.states)
    assert ({part.executor for part in instance.parts} != {"cpu"}) == whole, instance.refusals
    for inputs, want in zip(case.calls, case.run_reference(), strict=True):
        (got,) = instance.method("forward").run(*inputs)
        if want.dtype == np.uint8 and whole:
            _check_bytes(got, want)
        else:
            assert_close(got, want, case.tolerance * _LOOSER, case.id)


def _check_bytes(got: NDArray[np.uint8], want: NDArray[np.uint8]) -> None:
    """Rows of codes, which are the same, and a scale and a zero, which a division may touch."""
    np.testing.assert_array_equal(got[..., :-8], want[..., :-8])
    tails = (np.ascontiguousarray(rows[..., -8:]).view(np.float32) for rows in (got, want))
    np.testing.assert_allclose(*tails, rtol=3e-7)


def _check_sample(folder: Path) -> int:
    """Of each op the first row and the last: mostly the plainest, and one with all there is."""
    rows = [row for of_op in ROWS.values() for row in of_op[:: max(len(of_op) - 1, 1)]]
    states = {case.op: case for case in WITH_STATES}
    check_rows(rows, folder / "rows.satchel")
    for op, case in states.items():
        check_with_states(case, folder / f"{op}.satchel")
    return len(rows) + len(states)


def _check(ops: Sequence[str], folder: Path) -> int:
    """All rows of some ops; unknown names have none."""
    count = 0
    for op in ops:
        if op in ROWS:
            check_op(op, folder)
        states = [case for case in WITH_STATES if case.op == op]
        for number, case in enumerate(states):
            check_with_states(case, folder / f"{op}_state{number}.satchel")
        count += len(ROWS.get(op, [])) + len(states)
    return count


def main(wanted: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        count = _check_sample(Path(name)) if wanted == ["sample"] else _check(wanted, Path(name))
    print(f"{_native.vulkan.devices()[0]['name']}: {count} rows")


if __name__ == "__main__":
    main(sys.argv[1:])
