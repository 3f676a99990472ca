"""The ops of vision models in ONNX, beside those that language models have.

Images lie channels-last in Satchel's graphs and channels-first in ONNX. A convolution's result is
kept in ONNX's order until something asks for the other, so that a chain of layers, with what works
on each element between them, is never turned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import constant_encoding, is_activation, is_copy
from satchel.backends.qnn.modules.widths import constant_bits
from satchel.backends.qnn.onnx_model import OnnxWriter, WeightFile
from satchel.backends.qnn.stored import WeightStore
from satchel.graph.ir import Graph, Node, Value, attr_float, attr_int, attr_ints, largest
from satchel.graph.ops.window import Window
from satchel.quantize.static import ActivationEncoding

Array = NDArray[Any]

_FIRST = ".first"  # behind the name of a value whose channels come first
_TO_FIRST, _TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_IMAGE_OPS = {"conv2d", "max_pool2d", "avg_pool2d"}
_EACH = {
    "hardswish": "HardSwish",
    "exp": "Exp",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "neg": "Neg",
    "div": "Div",
    "maximum": "Max",
    "minimum": "Min",
}
# What works on each element, and so in any order.
_ANY_ORDER = {*_EACH, *"add sub mul affine clamp relu sigmoid tanh gelu hardsigmoid".split()}
_REDUCTIONS = {
    "reduce_mean": "ReduceMean",
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
}


class ModuleWriter(OnnxWriter):
    """Makes one model of a module's graph."""

    def __init__(
        self,
        graph: Graph,
        encodings: Mapping[str, ActivationEncoding],
        weights: WeightStore,
        file: WeightFile,
        bits: int = 8,
    ) -> None:
        super().__init__(graph, encodings, weights, file, bits)
        self._images: set[str] = set()  # values that are there in ONNX's order
        self._order = ""  # of the node that is being written

    def _add(self, node: Node) -> None:
        out = f"{node.outputs[0].name}{_FIRST}.exact"
        if node.op in _IMAGE_OPS:
            self._window(node, out)
        elif node.op in _ANY_ORDER and self._stays_first(node):
            self._order = _FIRST
            if is_copy(node):
                out = self._input(node, 0)
            else:
                self._emit(node, out)
            self._order = ""
        else:
            super()._add(node)
            return
        name, encoding = node.outputs[0].name, self.encodings[node.outputs[0].name]
        self._quantize(out, f"{name}{_FIRST}", encoding)
        self._images.add(name)
        # For those who want it the other way; if nobody does, this is left out.
        self._node("Transpose", [f"{name}{_FIRST}.number"], f"{name}.exact", perm=_TO_LAST)
        self._quantize(f"{name}.exact", name, encoding)

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

    def _input(self, node: Node, place: int, bits: int = 0) -> str:
        value = node.inputs[place]
        assert value is not None
        if self._order and is_activation(value):
            return f"{value.name}{self._order}.number"
        return super()._input(node, place, bits or constant_bits(value.name, self.bits))

    def _image(self, node: Node) -> str:
        """A node's first input in ONNX's order."""
        value = node.inputs[0]
        assert value is not None
        name = value.name
        if name not in self._images:
            turned = f"{name}{_FIRST}"
            self._node("Transpose", [f"{name}.number"], f"{turned}.exact", perm=_TO_FIRST)
            self._quantize(f"{turned}.exact", turned, self.encodings[name])
            self._images.add(name)
        return f"{name}{_FIRST}.number"

    def _window(self, node: Node, out: str) -> None:
        attrs = node.attrs
        window = Window.of(node.op, attrs)
        top, bottom, left, right = window.padding
        common: dict[str, Any] = {
            "kernel_shape": list(window.kernel),
            "strides": list(window.stride),
            "pads": [top, left, bottom, right],
        }
        if node.op == "conv2d":
            groups = attr_int(attrs, "groups", 1)
            inputs = [self._image(node), self._filter(node, window), *self._bias(node)]
            dilations = list(window.dilation)
            self._node("Conv", inputs, out, group=groups, dilations=dilations, **common)
            return
        common["ceil_mode"] = attr_int(attrs, "ceil_mode", 0)
        if node.op == "max_pool2d":
            dilations = list(window.dilation)
            self._node("MaxPool", [self._image(node)], out, dilations=dilations, **common)
        else:
            counted = attr_int(attrs, "count_include_pad", 1)
            self._node("AveragePool", [self._image(node)], out, count_include_pad=counted, **common)

    def _filter(self, node: Node, window: Window) -> str:
        """A convolution's weight, [outputs, channels, height, width]."""
        name = _weight(node)
        if name not in self._constants:
            stored = self.weights.matrix(name)
            kh, kw = window.kernel
            codes = stored.codes.reshape(len(stored.codes), kh, kw, -1).transpose(0, 3, 1, 2)
            self._rows(name, np.ascontiguousarray(codes), stored.scales)
        return self._constants[name]

    def _rows(self, name: str, codes: Array, scales: Array) -> None:
        """Codes of 8 bits with one scale for each entry of the first axis."""
        stored = self._large(f"{name}.codes", "int8", list(codes.shape), codes.tobytes)
        scale = self._small(f"{name}.scale", scales.reshape(-1).astype(np.float32))
        zero = self._small(f"{name}.zero", np.zeros(len(codes), np.int8))
        self._node("DequantizeLinear", [stored, scale, zero], f"{name}.number", axis=0)
        self._constants[name] = f"{name}.number"

    def _bias(self, node: Node) -> list[str]:
        """A layer's bias in whole numbers of 32 bits, in steps of its sums; or none."""
        source, bias = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
        if bias is None:
            return []
        assert source is not None
        steps = self.weights.matrix(_weight(node)).scales.reshape(-1).astype(np.float64)
        steps = (steps * self.encodings[source.name].scale).astype(np.float32)
        return [self._whole(f"{node.outputs[0].name}.bias", self._array(bias), steps)]

    def _linear(self, node: Node, out: str) -> None:
        """With a bias it is Gemm, which adds it before it rounds; that has rows only."""
        x, result = node.inputs[0], node.outputs[0]
        assert x is not None
        if len(node.inputs) < 3:
            super()._linear(node, out)
            return
        name = _weight(node)
        if f"{name}.turned" not in self._constants:
            stored = self.weights.matrix(name)
            self._rows(name, stored.codes, stored.scales)
            self._constants[f"{name}.turned"] = f"{name}.number"
        rows = self._input(node, 0)
        flat = len(x.shape) == 2
        if not flat:
            rows = f"{result.name}.rows"
            shape = self._indices(f"{rows}.shape", -1, largest(x.shape)[-1])
            self._node("Reshape", [self._input(node, 0), shape], f"{rows}.exact")
            self._quantize(f"{rows}.exact", rows, self.encodings[x.name])
            rows = f"{rows}.number"
        made = out if flat else f"{result.name}.sums.exact"
        self._node("Gemm", [rows, f"{name}.number", *self._bias(node)], made, transB=1)
        if not flat:
            self._quantize(made, f"{result.name}.sums", self.encodings[result.name])
            shape = self._indices(f"{out}.shape", *largest(result.shape))
            self._node("Reshape", [f"{result.name}.sums.number", shape], out)

    def _emit(self, node: Node, out: str) -> None:
        op, attrs = node.op, node.attrs
        if op in _EACH:
            count = len(node.inputs)
            self._node(_EACH[op], [self._input(node, i) for i in range(count)], out)
        elif op == "hardsigmoid":
            self._node("HardSigmoid", [self._input(node, 0)], out, alpha=1 / 6, beta=0.5)
        elif op == "clamp":
            limits = [
                self._small(f"{out}.{n}", np.array(attr_float(attrs, n), np.float32))
                if n in attrs
                else ""
                for n in ("low", "high")
            ]
            self._node("Clip", [self._input(node, 0), *limits], out)
        elif op in _REDUCTIONS:
            axes = self._indices(f"{out}.axes", *attr_ints(attrs, "axes"))
            keep = attr_int(attrs, "keepdims", 0)
            self._node(_REDUCTIONS[op], [self._input(node, 0), axes], out, keepdims=keep)
        elif op == "take":
            chosen = self._small(f"{out}.numbers", self._array(node.inputs[1]).astype(np.int32))
            axis = attr_int(attrs, "axis")
            self._node("Gather", [self._input(node, 0), chosen], out, axis=axis)
        elif op == "pad":
            widths = (*attr_ints(attrs, "before"), *attr_ints(attrs, "after"))
            self._node("Pad", [self._input(node, 0), self._indices(f"{out}.pads", *widths)], out)
        elif op == "expand":
            shape = self._indices(f"{out}.shape", *largest(node.outputs[0].shape))
            self._node("Expand", [self._input(node, 0), shape], out)
        elif op == "layer_norm":
            self._layer_norm(node, out)
        else:
            super()._emit(node, out)

    def _layer_norm(self, node: Node, out: str) -> None:
        """A shift has 32 bits where all else has 8; where all has 16, so have gain and shift."""
        x, shift = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
        assert x is not None
        wide = self.encodings[x.name].bits == 16
        inputs = [self._input(node, 0), self._input(node, 1, 16 if wide and shift else 8)]
        if shift is not None and wide:
            inputs.append(self._input(node, 2))
        elif shift is not None:
            gain = constant_encoding(self._array(node.inputs[1]), 8)
            steps = np.float32(self.encodings[x.name].scale * gain.scale)
            inputs.append(self._whole(f"{node.outputs[0].name}.shift", self._array(shift), steps))
        eps = attr_float(node.attrs, "eps")
        self._node("LayerNormalization", inputs, out, epsilon=eps)

    def _array(self, value: Value | None) -> Array:
        """The numbers of a small weight or constant."""
        assert value is not None
        array = value.constant if value.constant is not None else self.weights.array(value.name)
        return np.asarray(array)

    def _whole(self, name: str, array: Array, steps: Array | np.float32) -> str:
        """Numbers as whole ones of 32 bits, with one step or one for each."""
        codes = np.clip(np.rint(array.astype(np.float64) / steps), -(2**31), 2**31 - 1)
        whole = self._small(name, codes.astype(np.int32))
        scale = self._small(f"{name}.scale", np.asarray(steps, np.float32))
        zero = self._small(f"{name}.zero", np.zeros(np.shape(steps), np.int32))
        axis = {"axis": 0} if np.ndim(steps) else {}
        return self._node("DequantizeLinear", [whole, scale, zero], f"{name}.number", **axis)


def _weight(node: Node) -> str:
    value = node.inputs[1]
    assert value is not None and value.weight is not None
    return value.weight.name
