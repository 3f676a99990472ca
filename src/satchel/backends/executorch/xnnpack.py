"""A graph of XNNPACK's, put together value by value: what its delegate runs at one go.

Weights are named and not part of it: the file holds their bytes once, whoever uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema
from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import (
    serialize_xnnpack_binary,
)

NO_VALUE = 0xFFFFFFFF
_NAMED = 0xFFFFFFFFFFFFFFFF  # an offset that says: look it up by its name
_INPUT, _OUTPUT = 1, 2  # flags of values that the delegate is given, or gives
_VERSION = "0"
_Type = schema.XNNDatatype


@dataclass
class Subgraph:
    """Nodes are added in the order in which they run; sizes are the largest that there are."""

    nodes: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    constants: list[Any] = field(
        default_factory=lambda: [schema.ConstantDataOffset(offset=0, size=0)]
    )
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def value(
        self,
        shape: Sequence[int],
        kind: Any = _Type.xnn_datatype_fp32,
        quant: Any = None,
        constant: int = 0,
    ) -> int:
        """A value between nodes, or a constant."""
        number = len(self.values)
        plain = schema.XNNTensorValue(
            datatype=kind,
            num_dims=len(shape),
            dims=list(shape),
            constant_buffer_idx=constant,
            external_id=NO_VALUE,
            flags=0,
            id_out=number,
        )
        whole = plain if quant is None else schema.XNNQuantizedTensorValue(plain, quant)
        self.values.append(schema.XValue(whole))
        return number

    def like(self, number: int, shape: Sequence[int]) -> int:
        """A value of the same numbers as another one: floats, or codes of the same steps."""
        other = self.values[number].xvalue_union
        quant = getattr(other, "quant_params", None)
        return self.value(shape, getattr(other, "tensor_value", other).datatype, quant)

    def steps(self, number: int) -> tuple[float, int]:
        """Scale and zero point of a value of codes."""
        quant = self.values[number].xvalue_union.quant_params
        return quant.scale, quant.zero_point

    def give(self, shape: Sequence[int], quant: Any = None, kind: Any = None) -> int:
        """A value that comes from outside."""
        number = self.value(shape, kind or _Type.xnn_datatype_fp32, quant)
        self.inputs.append(number)
        return number

    def keep(self, number: int) -> None:
        """Let a value be one that goes outside."""
        if number not in self.outputs:
            self.outputs.append(number)

    def constant(self, key: str, size: int) -> int:
        """The number of named bytes."""
        for number, known in enumerate(self.constants):
            if known.named_key == key:
                return number
        self.constants.append(schema.ConstantDataOffset(offset=_NAMED, size=size, named_key=key))
        return len(self.constants) - 1

    def node(self, node: Any, limits: tuple[float, float] | None = None) -> None:
        """``limits`` are the least and the largest number of the output."""
        bounds = None
        if limits is not None:
            bounds = schema.OutputMinMax(*(_written(limit) for limit in limits))
        self.nodes.append(schema.XNode(node, 0, bounds))

    def serialized(self) -> bytes:
        """As the delegate reads it: outside values come first, inputs before outputs."""
        outside = [*self.inputs, *self.outputs]
        for external, number in enumerate(outside):
            tensor = self.values[number].xvalue_union
            tensor = getattr(tensor, "tensor_value", tensor)
            tensor.external_id = external
            tensor.flags = _INPUT if number in self.inputs else _OUTPUT
        graph = schema.XNNGraph(
            version=_VERSION,
            xnodes=self.nodes,
            xvalues=self.values,
            num_externs=len(outside),
            input_ids=list(self.inputs),
            output_ids=list(self.outputs),
            constant_data=self.constants,
        )
        return bytes(serialize_xnnpack_binary(graph, bytearray()))


def _written(limit: float) -> float | str:
    return limit if abs(limit) != float("inf") else ("inf" if limit > 0 else "-inf")
