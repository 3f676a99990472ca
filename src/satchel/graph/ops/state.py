"""Memory that outlives a call, written as a whole."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from satchel.graph.ops.registry import Arrays, Attrs, Types, define, require
from satchel.graph.types import TensorType

Array = NDArray[Any]


@define("state_write", 2)
class StateWrite:
    """The state, which is the first input, becomes the second."""

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        state, x = types
        assert state and x
        require(state == x, "state_write", "the state and its new value differ", types)
        return [state]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        return [arrays[1].copy()]
