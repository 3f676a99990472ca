"""Methods that something else than the native core runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel.errors import ExecutionError
from satchel.runtime.program import Method

Array = NDArray[Any]
Call = Callable[[Mapping[str, Array]], Mapping[str, Array]]  # inputs by name, to outputs


class CalledMethod(Method):
    """A method that is a call; its inputs are checked first."""

    def __init__(self, call: Call, info: Mapping[str, Any]) -> None:
        self._call = call
        self.describe(info)

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[Array]:
        given = dict(zip(self.inputs, self.convert(*arrays, **named), strict=True))
        for array, info in zip(given.values(), self.info["inputs"], strict=True):
            wanted = info["shape"]
            fixed = not any(isinstance(d, tuple) for d in wanted)
            if len(array.shape) != len(wanted) or (fixed and array.shape != tuple(wanted)):
                raise ExecutionError(
                    f"the input {info['name']!r} must have the shape {list(wanted)}, not "
                    f"{list(array.shape)}"
                )
        results = self._call(given)
        return [np.array(results[name]) for name in self.outputs]
