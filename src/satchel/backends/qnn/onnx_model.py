"""Writes a graph of plain ops as an ONNX model in which every value is quantised.

Each value is computed, quantised and dequantised again: the form from which the provider makes
integer ops. Inputs and outputs are the codes themselves. Weights lie in a file beside the model,
which the models of several methods share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import constant_encoding, is_copy
from satchel.backends.qnn.stored import StoredMatrix, WeightStore
from satchel.errors import GraphError
from satchel.graph.ir import Graph, Node, Value, attr_float, attr_int, attr_ints, largest
from satchel.quantize.static import ActivationEncoding

Array = NDArray[Any]

_OPSET, _IR = 23, 10  # 23 has RMSNormalization
_ALIGNMENT = 64
# Ops with the same name and meaning, and how ONNX spells them.
_SAME = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "matmul": "MatMul",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "gelu": "Gelu",
    "relu": "Relu",
}
# 4-bit codes are two to a byte, the first in the low half.
_INT4 = "int4"


@dataclass
class WeightFile:
    """Tensors after each other in one file, each stored once however often it is asked for."""

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
    """Makes one model. ``bits`` are those of stored vectors, which have no measured range."""

    def __init__(
        self,
        graph: Graph,
        encodings: Mapping[str, ActivationEncoding],
        weights: WeightStore,
        file: WeightFile,
        bits: int = 16,
    ) -> None:
        self.graph, self.encodings, self.weights, self.file = graph, encodings, weights, file
        self.bits = bits
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._parameters: dict[tuple[float, int, str], tuple[str, str]] = {}
        self._constants: dict[str, str] = {}

    def write(self, path: Path) -> None:
        """The model's file; its weights go into the weight file."""
        import onnx
        from onnx import helper

        inputs = [self._declare(v) for v in self.graph.inputs]
        for value in self.graph.inputs:
            self._dequantize(value.name, self.encodings[value.name])
        for node in self.graph.nodes:
            self._add(node)
        outputs = [self._declare(v) for v in self.graph.outputs]
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
        out = node.outputs[0].name
        encoding = self.encodings[out]
        if is_copy(node):
            self._quantize(self._input(node, 0), out, encoding)
            return
        self._emit(node, f"{out}.exact")
        self._quantize(f"{out}.exact", out, encoding)

    def _quantize(self, source: str, name: str, encoding: ActivationEncoding) -> None:
        self._node("QuantizeLinear", [source, *self._scale(encoding)], name)
        self._dequantize(name, encoding)

    def _dequantize(self, name: str, encoding: ActivationEncoding) -> None:
        self._node("DequantizeLinear", [name, *self._scale(encoding)], f"{name}.number")

    def _scale(self, encoding: ActivationEncoding) -> tuple[str, str]:
        key = (encoding.scale, encoding.zero_point, encoding.dtype.name)
        if key not in self._parameters:
            at = len(self._parameters)
            zero = np.array(encoding.zero_point, encoding.dtype)
            self._parameters[key] = (
                self._small(f"scale.{at}", np.array(encoding.scale, np.float32)),
                self._small(f"zero.{at}", zero),
            )
        return self._parameters[key]

    def _input(self, node: Node, place: int, bits: int = 0) -> str:
        value = node.inputs[place]
        assert value is not None
        if value.weight is not None:
            return self._vector(value.name, lambda: self.weights.array(value.name), bits)
        if value.constant is not None:
            constant = value.constant
            return self._vector(value.name, lambda: constant, bits)
        return f"{value.name}.number"

    def _vector(self, name: str, read: Callable[[], Array], bits: int = 0) -> str:
        """A small stored array, quantised with its own range."""
        if name not in self._constants:
            array = np.asarray(read(), np.float32)
            encoding = constant_encoding(array, bits or self.bits)
            self._small(name, encoding.quantize(array))
            self._dequantize(name, encoding)
            self._constants[name] = f"{name}.number"
        return self._constants[name]

    def _number(self, number: float) -> str:
        return self._vector(f"number.{number!r}", lambda: np.array([number], np.float32))

    def _small(self, name: str, array: Array) -> str:
        from onnx import numpy_helper

        self._initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _large(self, name: str, dtype: str, shape: list[int], data: Callable[[], bytes]) -> str:
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

    def _node(self, op: str, inputs: list[str], output: str, **attrs: Any) -> str:
        from onnx import helper

        self._nodes.append(helper.make_node(op, inputs, [output], name=f"make.{output}", **attrs))
        return output

    def _emit(self, node: Node, out: str) -> None:
        """One op, from dequantised inputs to a value that is not rounded yet."""
        op, attrs = node.op, node.attrs
        if op in _SAME:
            count = len(node.inputs)
            self._node(_SAME[op], [self._input(node, i) for i in range(count)], out)
        elif op == "affine":
            x, scale, shift = self._input(node, 0), attrs.get("scale"), attrs.get("shift")
            if scale is not None and shift is not None:
                raise GraphError(f"{node!r} must be lowered to two")
            kind, number = ("Mul", scale) if scale is not None else ("Add", shift)
            assert isinstance(number, (int, float))
            self._node(kind, [x, self._number(float(number))], out)
        elif op == "linear":
            self._linear(node, out)
        elif op == "rms_norm":
            inputs, eps = [self._input(node, i) for i in (0, 1)], attr_float(attrs, "eps")
            self._node("RMSNormalization", inputs, out, epsilon=eps)
        elif op == "layer_norm":
            # The chip takes gains of 8 bits only; lowered graphs have ones here, which fit.
            gain = self._input(node, 1, bits=8)
            eps = attr_float(attrs, "eps")
            self._node("LayerNormalization", [self._input(node, 0), gain], out, epsilon=eps)
        elif op == "softmax":
            self._node("Softmax", [self._input(node, 0)], out, axis=attr_int(attrs, "axis", -1))
        elif op == "reshape":
            shape = self._indices(f"{out}.shape", *attr_ints(attrs, "shape"))
            self._node("Reshape", [self._input(node, 0), shape], out)
        elif op == "transpose":
            perm = list(attr_ints(attrs, "perm"))
            self._node("Transpose", [self._input(node, 0)], out, perm=perm)
        elif op == "slice":
            names = [
                self._indices(f"{out}.{n}", attr_int(attrs, n)) for n in ("start", "stop", "axis")
            ]
            self._node("Slice", [self._input(node, 0), *names], out)
        elif op == "concat":
            parts = [self._input(node, i) for i in range(len(node.inputs))]
            self._node("Concat", parts, out, axis=attr_int(attrs, "axis"))
        else:
            raise GraphError(f"the NPU has no op {op}")

    def _indices(self, name: str, *numbers: int) -> str:
        return self._small(name, np.array(numbers, np.int64))

    def _linear(self, node: Node, out: str) -> None:
        """As MatMul: as Gemm, weights in blocks are silently computed wrong."""
        weight = node.inputs[1]
        assert weight is not None and weight.weight is not None
        name = weight.weight.name
        if f"{name}.number" not in self._constants:
            self._matrix(name, weight)
            self._constants[f"{name}.number"] = name
        self._node("MatMul", [self._input(node, 0), f"{name}.number"], out)

    def _matrix(self, name: str, value: Value) -> None:
        stored = self.weights.matrix(name)
        rows, cols = stored.codes.shape
        kind = _INT4 if stored.bits == 4 else "int8"
        codes = self._large(f"{name}.codes", kind, [cols, rows], lambda: _code_bytes(stored))
        if stored.factors is None:
            scale = self._small(f"{name}.scale", stored.scales.reshape(rows).astype(np.float32))
            zero = self._small(f"{name}.zero", np.zeros(rows, np.int8))
            self._node("DequantizeLinear", [codes, scale, zero], f"{name}.number", axis=1)
            return
        blocks = stored.scales.shape[1]
        whole = self._small(f"{name}.blocks", np.ascontiguousarray(stored.scales.T))
        factors = self._small(f"{name}.factors", stored.factors.astype(np.float32))
        none = self._small(f"{name}.blocks.zero", np.zeros(rows, np.uint8))
        scale = self._node("DequantizeLinear", [whole, factors, none], f"{name}.scale", axis=1)
        empty = bytes(blocks * rows // 2 + blocks * rows % 2)
        zero = self._large(f"zero.{blocks}x{rows}", _INT4, [blocks, rows], lambda: empty)
        self._node(
            "DequantizeLinear",
            [codes, scale, zero],
            f"{name}.number",
            axis=0,
            block_size=cols // blocks,
        )


def _needed(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """Without the nodes whose results nobody reads."""
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted |= set(node.input)
            kept.append(node)
    return kept[::-1]


def _code_bytes(stored: StoredMatrix) -> bytes:
    """Codes as ONNX wants them: [in, out], 4-bit ones two to a byte."""
    turned = np.ascontiguousarray(stored.codes.T)
    if stored.bits == 8:
        return turned.tobytes()
    halves = (turned.reshape(-1) & 15).astype(np.uint8)
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    return (halves[::2] | halves[1::2] << 4).tobytes()
