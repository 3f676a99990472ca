"""A module's function of an ML program: images are channels-first where Core ML wants them so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as Mil
from coremltools.converters.mil.mil import Function, types

from satchel.backends.coreml.constants import Constants
from satchel.backends.coreml.function import FUNCTIONS, GATED, scaled_to_one
from satchel.backends.foreign import lacks_dimensions
from satchel.graph.ir import Graph, Node, Value, attr_float, attr_int, attr_ints, attr_str, largest
from satchel.graph.ops.window import Window

_MOST_DIMENSIONS = 5  # of Core ML's tensors
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True)
class Picture:
    """How pixels, 0 to 255, become a module's numbers: (pixel / 255 - mean) / std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass
class _Known:
    """A value, as it is in the graph, and with channels first if it is an image."""

    plain: Any = None
    first: Any = None


@dataclass
class ImageFunctionWriter:
    """Takes the nodes one by one; an image is transposed only where an op wants it so."""

    graph: Graph
    opset: Any
    constants: Constants
    picture: Picture | None = None
    probabilities: bool = False  # outputs are logits, and are to be what they stand for
    _known: dict[int, _Known] = field(default_factory=dict)

    def write(self) -> Function:
        inputs = {
            value.name: Mil.placeholder(largest(value.shape), dtype=types.fp32)
            for value in self.graph.inputs
        }
        with Function(inputs, opset_version=self.opset) as function:
            for value in self.graph.inputs:
                given = Mil.cast(x=function.inputs[value.name], dtype="fp16")
                if self.picture is not None:
                    given = self._from_pixels(given, self.picture)
                self._known[id(value)] = _Known(plain=given)
            for node in self.graph.nodes:
                self._known[id(node.outputs[0])] = _NODES[node.op](self, node)
            function.set_outputs([self._output(value) for value in self.graph.outputs])
        if self.picture is not None:
            (value,) = self.graph.inputs
            layout = ct.colorlayout.RGB
            shape = largest(value.shape)
            image = ct.ImageType(value.name, shape, color_layout=layout, channel_first=True)
            function.set_input_types((image,))
        return function

    def _output(self, value: Value) -> Any:
        x = self._plain(value)
        x = Mil.softmax(x=x, axis=-1) if self.probabilities else x
        return Mil.cast(x=x, dtype="fp32", name=value.name)

    @staticmethod
    def _from_pixels(x: Any, picture: Picture) -> Any:
        mean, std = (np.array(v, np.float32) for v in (picture.mean, picture.std))
        scale = (1 / (255 * std)).astype(np.float16).reshape(1, -1, 1, 1)
        shift = (-mean / std).astype(np.float16).reshape(1, -1, 1, 1)
        return Mil.add(x=Mil.mul(x=x, y=scale), y=shift)

    # A value in one form or the other.

    def _plain(self, value: Value | None) -> Any:
        assert value is not None
        if value.constant is not None:
            return self.constants.array(value.name, np.asarray(value.constant, np.float16))
        if value.weight is not None:
            return self.constants.vector(value.weight.name, value.weight.shape)
        known = self._known[id(value)]
        if known.plain is None:
            known.plain = Mil.transpose(x=known.first, perm=_TO_LAST)
        return known.plain

    def _first(self, value: Value | None) -> Any:
        """An image with channels first."""
        assert value is not None
        known = self._known[id(value)]
        if known.first is None:
            known.first = Mil.transpose(x=known.plain, perm=_TO_FIRST)
        return known.first

    def _is_first(self, value: Value | None) -> bool:
        known = self._known.get(id(value))
        return known is not None and known.first is not None

    # Nodes.

    def conv2d(self, node: Node) -> _Known:
        x, weight = node.inputs[0], node.inputs[1]
        assert x is not None and weight is not None and weight.weight is not None
        window, groups = Window.of("conv2d", node.attrs), attr_int(node.attrs, "groups", 1)
        channels = largest(x.shape)[3] // groups
        name, outputs = weight.weight.name, weight.weight.shape[0]
        kernel = self.constants.kernel(name, (outputs, channels, *window.kernel))
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        stored = {"bias": self._plain(bias)} if _is_stored(bias) else {}
        out = Mil.conv(
            x=self._first(x),
            weight=kernel,
            strides=window.stride,
            pad_type="custom",
            pad=window.padding,
            dilations=window.dilation,
            groups=groups,
            **stored,
        )
        if bias is not None and not stored:
            shift = Mil.reshape(x=self._plain(bias), shape=(1, -1, 1, 1))
            out = Mil.add(x=out, y=shift)
        return _Known(first=self._activated(node, out))

    def _activated(self, node: Node, x: Any) -> Any:
        activation = attr_str(node.attrs, "activation", "none")
        return x if activation == "none" else FUNCTIONS[activation](x)

    def linear(self, node: Node) -> _Known:
        weight = node.inputs[1]
        assert weight is not None and weight.weight is not None
        rows, cols = weight.weight.shape
        matrix = self.constants.kernel(weight.weight.name, (rows, cols))
        out = Mil.matmul(x=self._plain(node.inputs[0]), y=matrix, transpose_y=True)
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            out = Mil.add(x=out, y=self._plain(node.inputs[2]))
        return _Known(self._activated(node, out))

    def pool(self, node: Node) -> _Known:
        window, divisor = Window.of(node.op, node.attrs), attr_int(node.attrs, "divisor", 0)
        given = {
            "x": self._first(node.inputs[0]),
            "kernel_sizes": window.kernel,
            "strides": window.stride,
            "pad_type": "custom",
            "pad": window.padding,
            "ceil_mode": bool(attr_int(node.attrs, "ceil_mode", 0)),
        }
        if node.op == "max_pool2d":
            return _Known(first=Mil.max_pool(**given))
        counted = bool(divisor or attr_int(node.attrs, "count_include_pad", 1))
        out = Mil.avg_pool(**given, exclude_padding_from_average=not counted)
        if divisor:
            out = Mil.mul(x=out, y=np.float16(prod(window.kernel) / divisor))
        return _Known(first=out)

    def reduce_mean(self, node: Node) -> _Known:
        axes, keep = attr_ints(node.attrs, "axes"), bool(attr_int(node.attrs, "keepdims", 0))
        if tuple(axes) == (1, 2) and self._is_first(node.inputs[0]):
            x = Mil.reduce_mean(x=self._first(node.inputs[0]), axes=[2, 3], keep_dims=keep)
            return _Known(first=x) if keep else _Known(x)
        x = self._plain(node.inputs[0])
        return _Known(Mil.reduce_mean(x=x, axes=list(axes), keep_dims=keep) if axes else x)

    def binary(self, node: Node) -> _Known:
        function, images = _BINARY[node.op], all(self._is_first(v) for v in node.inputs)
        if images:
            x, y = (self._first(v) for v in node.inputs)
            return _Known(first=function(x=x, y=y))
        x, y = (self._plain(v) for v in node.inputs)
        return _Known(function(x=x, y=y))

    def unary(self, node: Node) -> _Known:
        function = FUNCTIONS[node.op]
        if self._is_first(node.inputs[0]):
            return _Known(first=function(self._first(node.inputs[0])))
        return _Known(function(self._plain(node.inputs[0])))

    def clamp(self, node: Node) -> _Known:
        low = np.float16(attr_float(node.attrs, "low", -65504.0))
        high = np.float16(attr_float(node.attrs, "high", 65504.0))
        if self._is_first(node.inputs[0]):
            return _Known(first=Mil.clip(x=self._first(node.inputs[0]), alpha=low, beta=high))
        return _Known(Mil.clip(x=self._plain(node.inputs[0]), alpha=low, beta=high))

    def affine(self, node: Node) -> _Known:
        first = self._is_first(node.inputs[0])
        x = self._first(node.inputs[0]) if first else self._plain(node.inputs[0])
        x = Mil.mul(x=x, y=np.float16(attr_float(node.attrs, "scale", 1.0)))
        x = Mil.add(x=x, y=np.float16(attr_float(node.attrs, "shift", 0.0)))
        return _Known(first=x) if first else _Known(x)

    def transpose(self, node: Node) -> _Known:
        perm = attr_ints(node.attrs, "perm")
        if tuple(perm) == _TO_LAST:
            return _Known(first=self._plain(node.inputs[0]))
        if tuple(perm) == _TO_FIRST:
            return _Known(self._first(node.inputs[0]))
        return _Known(Mil.transpose(x=self._plain(node.inputs[0]), perm=list(perm)))

    def reshape(self, node: Node) -> _Known:
        shape = largest(node.outputs[0].shape)
        return _Known(Mil.reshape(x=self._plain(node.inputs[0]), shape=shape))

    def slice(self, node: Node) -> _Known:
        assert node.inputs[0] is not None
        shape, axis = largest(node.inputs[0].shape), attr_int(node.attrs, "axis")
        begin, end = [0] * len(shape), list(shape)
        begin[axis], end[axis] = attr_int(node.attrs, "start"), attr_int(node.attrs, "stop")
        return _Known(Mil.slice_by_index(x=self._plain(node.inputs[0]), begin=begin, end=end))

    def concat(self, node: Node) -> _Known:
        axis = attr_int(node.attrs, "axis")
        if all(self._is_first(v) for v in node.inputs):
            place = _TO_FIRST.index(axis)
            return _Known(
                first=Mil.concat(values=[self._first(v) for v in node.inputs], axis=place)
            )
        return _Known(Mil.concat(values=[self._plain(v) for v in node.inputs], axis=axis))

    def softmax(self, node: Node) -> _Known:
        axis = attr_int(node.attrs, "axis", -1)
        return _Known(Mil.softmax(x=self._plain(node.inputs[0]), axis=axis))

    def layer_norm(self, node: Node) -> _Known:
        """What is stored belongs to Core ML's own op; what is computed comes after it."""
        gamma, beta = (*node.inputs[1:], None, None)[:2]
        kept = _is_stored(gamma) and (beta is None or _is_stored(beta))
        known = {"gamma": gamma, "beta": beta} if kept else {}
        stored = {name: self._plain(value) for name, value in known.items() if value is not None}
        eps = np.float16(max(attr_float(node.attrs, "eps"), 1e-7))
        x = self._plain(node.inputs[0])
        out = Mil.layer_norm(x=x, axes=[-1], epsilon=eps, **stored)
        if not kept:
            out = Mil.mul(x=out, y=self._plain(gamma))
            out = out if beta is None else Mil.add(x=out, y=self._plain(beta))
        return _Known(out)

    def rms_norm(self, node: Node) -> _Known:
        unit = scaled_to_one(self._plain(node.inputs[0]), -1, attr_float(node.attrs, "eps"))
        return _Known(Mil.mul(x=unit, y=self._plain(node.inputs[1])))

    def matmul(self, node: Node) -> _Known:
        return _Known(Mil.matmul(x=self._plain(node.inputs[0]), y=self._plain(node.inputs[1])))

    def attention_full(self, node: Node) -> _Known:
        q, k, v = (
            Mil.transpose(x=self._plain(node.inputs[place]), perm=[0, 2, 1, 3])
            for place in range(3)
        )
        q = Mil.mul(x=q, y=np.float16(attr_float(node.attrs, "scale")))
        scores = Mil.matmul(x=q, y=k, transpose_y=True)
        if len(node.inputs) > 3 and node.inputs[3] is not None:
            bias = self._plain(node.inputs[3])
            if bias.shape[0] not in (1, scores.shape[0]):  # of the windows of each image
                bias = Mil.tile(x=bias, reps=[scores.shape[0] // bias.shape[0], 1, 1, 1])
            scores = Mil.add(x=scores, y=bias)
        mixed = Mil.matmul(x=Mil.softmax(x=scores, axis=-1), y=v)
        return _Known(Mil.transpose(x=mixed, perm=[0, 2, 1, 3]))


def why_not(node: Node) -> str | None:
    """What of an op an ML program does not do."""
    if lacks_dimensions(node):
        return f"{node.op} of a number without dimensions"
    if any(len(value.shape) > _MOST_DIMENSIONS for value in (*node.inputs, *node.outputs) if value):
        return f"{node.op} of more than {_MOST_DIMENSIONS} dimensions"
    if node.op == "conv2d" and len(node.inputs) > 3 and node.inputs[3] is not None:
        return "conv2d that adds another image to its result"
    if node.op == "layer_norm" and "out_scale" in node.attrs:
        return "layer_norm that gives codes"
    if node.op in ("max_pool2d", "avg_pool2d"):
        return _why_not_pool(node)
    return None


def _why_not_pool(node: Node) -> str | None:
    window = Window.of(node.op, node.attrs)
    if window.dilation != (1, 1):
        return f"{node.op} of pixels that are not neighbours (dilation)"
    if not attr_int(node.attrs, "ceil_mode", 0):
        return None
    top, bottom, left, right = window.padding
    if (top, left) != (bottom, right):
        return f"{node.op} whose windows reach over the edge (ceil_mode) of uneven padding"
    counted = attr_int(node.attrs, "divisor", 0) or attr_int(node.attrs, "count_include_pad", 1)
    if node.op == "avg_pool2d" and counted:
        return "avg_pool2d whose windows count what lies over the edge (ceil_mode)"
    return None


def _is_stored(value: Value | None) -> bool:
    """Whether a value is known before anything runs."""
    return value is not None and (value.constant is not None or value.weight is not None)


_BINARY: dict[str, Callable[..., Any]] = {
    **GATED,
    "add": Mil.add,
    "sub": Mil.sub,
    "mul": Mil.mul,
    "div": Mil.real_div,
    "maximum": Mil.maximum,
    "minimum": Mil.minimum,
}
_W = ImageFunctionWriter
_NODES: dict[str, Callable[[ImageFunctionWriter, Node], _Known]] = {
    "conv2d": _W.conv2d,
    "linear": _W.linear,
    "max_pool2d": _W.pool,
    "avg_pool2d": _W.pool,
    "reduce_mean": _W.reduce_mean,
    "clamp": _W.clamp,
    "affine": _W.affine,
    "transpose": _W.transpose,
    "reshape": _W.reshape,
    "slice": _W.slice,
    "concat": _W.concat,
    "softmax": _W.softmax,
    "layer_norm": _W.layer_norm,
    "rms_norm": _W.rms_norm,
    "matmul": _W.matmul,
    "attention_full": _W.attention_full,
    **dict.fromkeys(_BINARY, _W.binary),
    **dict.fromkeys(FUNCTIONS, _W.unary),
}
IMAGE_OPS = frozenset(_NODES)
