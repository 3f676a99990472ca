"""ONNX's own tests of its operators, run natively: right, refused with the reason, or wrong.

    python benchmarks/onnx_coverage.py                       # all, some minutes
    python benchmarks/onnx_coverage.py --only 'test_conv' --list

Inputs that a published model has as constants (shapes, axes, sizes) are given as inputs by some
tests; these are tried again with them as constants. Empty tensors, types that no graph has (64-bit
unsigned, 8-bit floats, text, sequences) and operators of training are left out.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import satchel
from satchel.errors import SatchelError

NARROW = "bool int32 int64 float32 float16 float64 int8 uint8 int16 uint16 uint32".split()
COMPUTED = {"float16": "float32", "float64": "float32", "uint32": "int64"}
COMPUTED |= dict.fromkeys(["int8", "uint8", "int16", "uint16"], "int32")
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}


def with_constants(model: Any, arrays: dict[str, Any], first: int) -> Any:
    """The model with whole numbers and a few others as constants, from one input on."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    rest = [value.name for value in model.graph.input][first:]
    fixed = [n for n in rest if arrays[n].dtype.kind in "iub" or arrays[n].size <= 8]
    for name in fixed:
        changed.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
    kept = [value for value in model.graph.input if value.name not in fixed]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    return changed


def run(model: Any, arrays: dict[str, Any], folder: Path) -> list[Any]:
    onnx.save(model, folder / "model.onnx")
    path = satchel.export(folder / "model.onnx", folder / "m.satchel", overwrite=True)
    method = satchel.load(path).method()
    given = [arrays[name] for name in method.inputs]
    return list(method.run(*(a.astype(COMPUTED.get(str(a.dtype), a.dtype)) for a in given)))


def outcome(case: Any, folder: Path) -> tuple[str, str]:
    """What became of a test, and why."""
    inputs, outputs = ([np.asarray(a) for a in side] for side in case.data_sets[0])
    if any(str(a.dtype) not in NARROW or not a.size for a in (*inputs, *outputs)):
        return "left out", ""
    names = [value.name for value in case.model.graph.input]
    arrays = dict(zip(names, inputs, strict=False))
    models = [case.model, *(with_constants(case.model, arrays, first) for first in (1, 0))]
    for model in models:
        try:
            got = run(model, arrays, folder)
            break
        except SatchelError as error:
            why = str(error).removeprefix("the module uses what is not supported: ")
            if "run time" not in why or model is models[-1]:
                return "refused", why
    if len(got) != len(outputs):
        return "wrong", f"{len(got)} outputs for {len(outputs)}"
    for mine, theirs in zip(got, outputs, strict=True):
        if mine.shape != theirs.shape:
            return "wrong", f"the shape {mine.shape} for {theirs.shape}"
        wide = TOLERANCE if theirs.dtype != np.float16 else {"rtol": 3e-3, "atol": 3e-3}
        pair = (a.astype(np.float64) for a in (mine, theirs))
        if not np.allclose(*pair, equal_nan=True, **wide):  # type: ignore[arg-type]
            return "wrong", "other numbers"
    return "right", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="tests whose name has this, by search")
    parser.add_argument("--list", action="store_true", help="name what is refused, and why")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in collect_testcases(None):
            if not case.data_sets or not re.search(arguments.only, case.name):
                continue
            try:
                result, why = outcome(case, Path(folder))
            except (ValueError, TypeError, AttributeError):  # sequences, text, optional values
                result, why = "left out", ""
            counts[result] += 1
            if result == "wrong" or (arguments.list and result == "refused"):
                print(f"{result:8} {case.name}: {why[:160]}")
    told = ", ".join(f"{count} {result}" for result, count in counts.most_common())
    print(f"{sum(counts.values())} tests: {told}")


if __name__ == "__main__":
    main()
