"""Imported modules against torch: in the reference, and as programs in 32 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import satchel
from support.compare import assert_close
from torch_import.module_table import ROWS, Row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_program_computes_what_torch_does(row: Row, tmp_path: Path) -> None:
    module, inputs = row.module(), row.tensors()
    path = satchel.export(module, inputs, tmp_path / "x.satchel")
    got = satchel.load(path).method().run(*(x.numpy() for x in inputs))
    with torch.no_grad():
        wanted = module(*inputs)
    listed = wanted if isinstance(wanted, tuple) else (wanted,)
    assert len(got) == len(listed)
    for number, (mine, theirs) in enumerate(zip(got, listed, strict=True)):
        want = theirs.numpy()
        if want.dtype.kind == "f":
            assert_close(mine, want, 1e-4, f"output {number}")
        else:
            np.testing.assert_array_equal(mine, want, err_msg=f"output {number}")
