"""PyTorch's own samples of operators (OpInfo) as oracle: some of each, run natively.

All of them: ``python benchmarks/aten_coverage.py``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("expecttest")  # which PyTorch's own samples need
# They import setuptools, which refuses to be imported after Python's own distutils: so before any
# test runs.
pytest.importorskip("setuptools")


@pytest.fixture(scope="module")
def coverage() -> Iterator[ModuleType]:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("aten_coverage")
    sys.path.pop(0)


NAMES = """
add sub mul div remainder fmod pow bitwise_and bitwise_not bitwise_xor sum prod amax argmax cumsum
sort topk gather scatter scatter_add scatter_reduce index_add index_copy index_put index_select
masked_scatter select_scatter slice_scatter diagonal unfold cummax kthvalue where
atan2 erfinv expm1 log1p conv2d conv3d conv_transpose2d max_pool2d max_pool3d avg_pool3d grid_sample
cdist embedding_bag
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_pytorchs_own_samples(name: str, coverage: ModuleType, tmp_path: Path) -> None:
    found = coverage.try_operator(name, 2, tmp_path)
    assert found.counts["wrong"] == 0, found.reasons
    assert found.counts["right"] > 0, found.reasons
