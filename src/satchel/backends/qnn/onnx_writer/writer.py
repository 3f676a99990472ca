"""The model while it is written: values and their codes, stored arrays, the order of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import constant_encoding, is_copy
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.ops import is_activation
from satchel.backends.qnn.weights import WeightStore
from satchel.backends.qnn.widths import constant_bits
from satchel.errors import GraphError
from satchel.graph.ir import Graph, Node, Value, largest
from satchel.graph.ops.registry import Trait, ops_with
from satchel.quantize.static import ActivationEncoding

Array = NDArray[Any]

_OPSET, _IR = 23, 10  # 23 has RMSNormalization
_ALIGNMENT = 64

FIRST = ".first"  # behind the name of a value whose channels come first
_TO_FIRST, _TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
IMAGE_OPS = frozenset("conv2d conv_transpose2d max_pool2d avg_pool2d".split())
# What works on each element, and so in any order.
ANY_ORDER = ops_with(Trait.unary) | ops_with(Trait.elementwise)


@dataclass
class ExternalData:
    """What ONNX calls tensors beside a model: in one file, each once however often it is used."""

    path: Path
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    _file: IO[bytes] | None = None

    def place(self, key: str, data: Callable[[], bytes]) -> tuple[int, int]:
        if key not in self.places:
            if self._file is None:
                self._file = self.path.open("wb")
            at = -(-self._file.tell() // _ALIGNMENT) * _ALIGNMENT
            self._file.seek(at)
            written = self._file.write(data())
            self.places[key] = (at, written)
        return self.places[key]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class OnnxWriter:
    """Makes one model. ``bits`` are those of stored vectors, which have no measured range; with
    floats nothing is rounded, and values are what the ops make of each other."""

    def __init__(
        self,
        graph: Graph,
        encodings: Mapping[str, ActivationEncoding],
        weights: WeightStore,
        file: ExternalData,
        bits: int = 16,
    ) -> None:
        self.graph, self.encodings, self.weights, self.file = graph, encodings, weights, file
        self.bits = bits
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._parameters: dict[tuple[float, int, str], tuple[str, str]] = {}
        self.constants: dict[str, str] = {}
        self._images: set[str] = set()  # values that are there in ONNX's order
        self._renamed: dict[str, str] = {}  # floats: what is not rounded is the value itself
        self._order = ""  # of what the node that is being written reads

    def write(self, path: Path) -> None:
        """The model's file; its weights go into the weight file."""
        import onnx
        from onnx import helper

        inputs = [self._declare(v) for v in self.graph.inputs]
        for value in self.graph.inputs:
            self.dequantize(value.name, self.encodings[value.name])
        for node in self.graph.nodes:
            self._add(node)
        outputs = [self._declare(v) for v in self.graph.outputs]
        self._rename()
        nodes = _needed(self._nodes, {v.name for v in self.graph.outputs})
        made = helper.make_graph(nodes, self.graph.name, inputs, outputs, self._initializers)
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR
        onnx.save(model, str(path))

    def _declare(self, value: Value) -> Any:
        from onnx import helper

        code = helper.np_dtype_to_tensor_dtype(self.encodings[value.name].dtype)
        return helper.make_tensor_value_info(value.name, code, largest(value.shape))

    def _add(self, node: Node) -> None:
        name = node.outputs[0].name
        images = node.op in IMAGE_OPS or (node.op in ANY_ORDER and self._stays_first(node))
        if not images:
            self._compute(node, name)
            return
        self._order = FIRST if node.op not in IMAGE_OPS else ""
        self._compute(node, f"{name}{FIRST}")
        self._order = ""
        self._images.add(name)
        # For those who want it the other way; if nobody does, this is left out.
        self.node("Transpose", [f"{name}{FIRST}.number"], f"{name}.exact", perm=_TO_LAST)
        self.quantize(f"{name}.exact", name, self.encodings[name])

    def _compute(self, node: Node, name: str) -> None:
        """From a node's inputs to the codes of its result."""
        exact, floats = f"{name}.exact", self.encodings[node.outputs[0].name].bits == FLOATS
        if is_copy(node) and not floats:
            exact = self.input(node, 0)
        else:
            emit = EMITTERS.get(node.op)
            if emit is None:
                raise GraphError(f"the NPU has no op {node.op}")
            emit(self, node, exact)
        self.quantize(exact, name, self.encodings[node.outputs[0].name])

    def _stays_first(self, node: Node) -> bool:
        """Whether all inputs are images that are there in ONNX's order, or single numbers."""
        for value in node.inputs:
            assert value is not None
            if is_activation(value):
                if value.name not in self._images:
                    return False
            elif int(np.prod(largest(value.shape))) != 1:
                return False
        return True

    def image(self, node: Node) -> str:
        """A node's first input in ONNX's order."""
        value = node.inputs[0]
        assert value is not None
        name = value.name
        if name not in self._images:
            first = f"{name}{FIRST}"
            self.node("Transpose", [f"{name}.number"], f"{first}.exact", perm=_TO_FIRST)
            self.quantize(f"{first}.exact", first, self.encodings[name])
            self._images.add(name)
        return f"{name}{FIRST}.number"

    def quantize(self, source: str, name: str, encoding: ActivationEncoding) -> None:
        if encoding.bits != FLOATS:
            self.node("QuantizeLinear", [source, *self._scale(encoding)], name)
        else:
            self._renamed[source] = name
        self.dequantize(name, encoding)

    def dequantize(self, name: str, encoding: ActivationEncoding) -> None:
        if encoding.bits == FLOATS:
            self._renamed[f"{name}.number"] = name
        else:
            self.node("DequantizeLinear", [name, *self._scale(encoding)], f"{name}.number")

    def _rename(self) -> None:
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]

    @property
    def number_type(self) -> type[np.floating[Any]]:
        """Of numbers that are no codes: limits of a clamp."""
        return np.float16 if self.bits == FLOATS else np.float32

    def _scale(self, encoding: ActivationEncoding) -> tuple[str, str]:
        key = (encoding.scale, encoding.zero_point, encoding.dtype.name)
        if key not in self._parameters:
            at = len(self._parameters)
            zero = np.array(encoding.zero_point, encoding.dtype)
            self._parameters[key] = (
                self.small(f"scale.{at}", np.array(encoding.scale, np.float32)),
                self.small(f"zero.{at}", zero),
            )
        return self._parameters[key]

    def input(self, node: Node, place: int, bits: int = 0) -> str:
        value = node.inputs[place]
        assert value is not None
        bits = bits or constant_bits(value.name, self.bits)
        if value.weight is not None:
            return self.vector(value.name, lambda: self.weights.array(value.name), bits)
        if value.constant is not None:
            constant = value.constant
            return self.vector(value.name, lambda: constant, bits)
        return f"{value.name}{self._order}.number"

    def array(self, value: Value | None) -> Array:
        """The numbers of a small weight or constant."""
        assert value is not None
        array = value.constant if value.constant is not None else self.weights.array(value.name)
        return np.asarray(array)

    def vector(self, name: str, read: Callable[[], Array], bits: int = 0) -> str:
        """A small stored array, quantised with its own range."""
        if name not in self.constants:
            array = np.asarray(read(), np.float32)
            encoding = constant_encoding(array, bits or self.bits)
            self.small(name, encoding.quantize(array))
            self.dequantize(name, encoding)
            self.constants[name] = f"{name}.number"
        return self.constants[name]

    def number(self, number: float) -> str:
        return self.vector(f"number.{number!r}", lambda: np.array([number], np.float32))

    def small(self, name: str, array: Array) -> str:
        from onnx import numpy_helper

        self._initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def large(self, name: str, dtype: str, shape: list[int], data: Callable[[], bytes]) -> str:
        """A tensor in the weight file."""
        from onnx import TensorProto

        if any(tensor.name == name for tensor in self._initializers):
            return name
        at, size = self.file.place(name, data)
        tensor = TensorProto(name=name, data_type=TensorProto.DataType.Value(dtype.upper()))
        tensor.dims.extend(shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", self.file.path.name),
            ("offset", str(at)),
            ("length", str(size)),
        ):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
        self._initializers.append(tensor)
        return name

    def node(self, op: str, inputs: list[str], output: str, **attrs: Any) -> str:
        from onnx import helper

        self._nodes.append(helper.make_node(op, inputs, [output], name=f"make.{output}", **attrs))
        return output

    def indices(self, name: str, *numbers: int) -> str:
        return self.small(name, np.array(numbers, np.int64))


def _needed(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """Without the nodes whose results nobody reads."""
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted |= set(node.input)
            kept.append(node)
    return kept[::-1]


# Writes one op, from dequantised inputs to a value that is not rounded yet, under a name.
EMITTERS: dict[str, Callable[[OnnxWriter, Node, str], None]] = {}
