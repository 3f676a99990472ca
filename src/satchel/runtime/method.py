"""An entry point of a program, and how what it is called with becomes arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel import _native
from satchel.errors import ExecutionError

_DTYPES = {"f32": "float32", "f16": "float16", "i32": "int32", "i64": "int64"}
_DTYPES |= {"i8": "int8", "u8": "uint8", "bool": "bool"}


class Method:
    """An entry point of a program. Call it with arrays, by position or by name.

    One output is returned as an array, several as a dictionary.
    """

    def __init__(self, instance: _native.Instance, number: int, info: Mapping[str, Any]) -> None:
        self._instance = instance
        self._number = number
        self.describe(info)

    def describe(self, info: Mapping[str, Any]) -> None:
        self.info = info
        self.name: str = info["name"]
        self.inputs: list[str] = [v["name"] for v in info["inputs"]]
        self.outputs: list[str] = [v["name"] for v in info["outputs"]]
        self._dtypes = [np.dtype(_DTYPES[v["dtype"]]) for v in info["inputs"]]

    def __call__(
        self, *arrays: ArrayLike, **named: ArrayLike
    ) -> NDArray[Any] | dict[str, NDArray[Any]]:
        results = self.run(*arrays, **named)
        return results[0] if len(results) == 1 else dict(zip(self.outputs, results, strict=True))

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[NDArray[Any]]:
        """All outputs, in order."""
        results: list[NDArray[Any]] = self._instance.run(
            self._number, self.convert(*arrays, **named)
        )
        return results

    def run_chain(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[int],
        rules: Sequence[_native.TokenRule],
        random: Sequence[Sequence[float]],
    ) -> list[list[int]]:
        """The tokens behind ``tokens``, of each sequence one in each run, chosen from the logits
        of the run before where they are.

        Each sequence has a rule, and in each run a random number in [0, 1). There may be fewer runs
        than asked for; none where whoever runs the method cannot choose, and -1 where logits had no
        meaning. Without a temperature the likeliest are taken.
        """
        chosen = self._instance.run_chain(
            self._number,
            list(tokens),
            list(positions),
            list(sequences),
            list(rules),
            [number for run in random for number in run],
        )
        count = len(tokens)
        return [chosen[at : at + count] for at in range(0, len(chosen), count)]

    def convert(self, *arrays: ArrayLike, **named: ArrayLike) -> list[NDArray[Any]]:
        """The inputs in order, as arrays of their types."""
        if not named and len(arrays) == len(self.inputs):  # as a token's call is
            return list(map(_convert, self.inputs, arrays, self._dtypes))
        given = dict(zip(self.inputs, arrays, strict=False))
        unknown = sorted(set(named) - set(self.inputs)) or sorted(set(named) & set(given))
        if unknown or len(arrays) > len(self.inputs):
            wanted = ", ".join(self.inputs)
            raise ExecutionError(f"{self.name} takes the inputs {wanted}", "Give each one once.")
        given |= named
        given |= self._step_of(given)
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise ExecutionError(f"{self.name} needs the input {missing[0]!r}")
        return [
            _convert(name, given[name], dtype)
            for name, dtype in zip(self.inputs, self._dtypes, strict=True)
        ]

    def _step_of(self, given: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """A single position is that of the first token, and without a sequence it is the one of
        callers that name none."""
        if "sequence" not in self.inputs or "position" not in given:
            return {}
        position, count = np.asarray(given["position"]), np.size(given.get("tokens", 0))
        line = position.shape == (1,) and count > 1 and "parents" not in self.inputs
        position = position + np.arange(count, dtype=np.int32) if line else position
        return {"position": position, "sequence": given.get("sequence", np.zeros_like(position))}


def _convert(name: str, value: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype == dtype and array.flags.carray:  # in order, aligned and not swapped
        return array
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ExecutionError(f"the input {name!r} must be {dtype}, not {array.dtype}")
    both_whole = array.dtype.kind in "iu" and dtype.kind in "iu"
    if both_whole and not np.can_cast(array.dtype, dtype, "safe") and array.size:
        limits = np.iinfo(dtype)
        for extreme in (int(array.min()), int(array.max())):
            if not limits.min <= extreme <= limits.max:
                raise ExecutionError(f"the input {name!r} has {extreme}, which is no {dtype}")
    return np.require(array, dtype, ["C", "A"])
