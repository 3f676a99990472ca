"""Every kernel test runs once for each instruction set that this CPU has."""

from __future__ import annotations

import numpy as np
import pytest

from satchel import _native


@pytest.fixture(params=_native.kernels.available())
def table(request: pytest.FixtureRequest) -> str:
    """The name of a kernel table."""
    return str(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
