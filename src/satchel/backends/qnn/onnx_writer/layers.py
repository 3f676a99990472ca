"""Layers with weights, norms and pools."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import constant_encoding
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.onnx_writer.writer import EMITTERS, OnnxWriter
from satchel.backends.qnn.weights import StoredMatrix
from satchel.graph.ir import Node, attr_float, attr_int, largest
from satchel.graph.ops.window import Window

Array = NDArray[Any]
# 4-bit codes are two to a byte, the first in the low half.
_INT4 = "int4"


def _linear(to: OnnxWriter, node: Node, out: str) -> None:
    """As MatMul; with a bias as Gemm, which adds it before it rounds.

    Weights in blocks have none here: as Gemm they are silently computed wrong.
    """
    if len(node.inputs) > 2:
        _gemm(to, node, out)
        return
    name = _weight(node)
    if name not in to.constants:
        _matrix(to, name)
        to.constants[name] = f"{name}.number"
    to.node("MatMul", [to.input(node, 0), to.constants[name]], out)


def _matrix(to: OnnxWriter, name: str) -> None:
    """A weight as MatMul wants it, [in, out]."""
    stored = to.weights.matrix(name)
    rows, cols = stored.codes.shape
    if stored.bits == 16:
        to.large(f"{name}.number", "float16", [cols, rows], lambda: _code_bytes(stored))
        return
    kind = _INT4 if stored.bits == 4 else "int8"
    codes = to.large(f"{name}.codes", kind, [cols, rows], lambda: _code_bytes(stored))
    if stored.factors is None and stored.scales.shape[1] > 1:
        scales = to.small(f"{name}.scale", np.ascontiguousarray(stored.scales.T))
        _blocks(to, name, [codes, scales], stored, kind)
        return
    if stored.factors is None:
        scale = to.small(f"{name}.scale", stored.scales.reshape(rows).astype(np.float32))
        zero = _zeros(to, kind, rows)
        to.node("DequantizeLinear", [codes, scale, zero], f"{name}.number", axis=1)
        return
    whole = to.small(f"{name}.blocks", np.ascontiguousarray(stored.scales.T))
    factors = to.small(f"{name}.factors", stored.factors.astype(np.float32))
    none = to.small(f"{name}.blocks.zero", np.zeros(rows, np.uint8))
    scale = to.node("DequantizeLinear", [whole, factors, none], f"{name}.scale", axis=1)
    _blocks(to, name, [codes, scale], stored, kind)


def _blocks(to: OnnxWriter, name: str, given: list[str], stored: StoredMatrix, kind: str) -> None:
    """Codes with a scale for each block of a column, and no zero points."""
    rows, cols = stored.codes.shape
    count = stored.scales.shape[1]
    zero = _zeros(to, kind, count, rows)
    size = cols // count
    to.node("DequantizeLinear", [*given, zero], f"{name}.number", axis=0, block_size=size)


def _zeros(to: OnnxWriter, kind: str, *shape: int) -> str:
    """Zero points of all blocks or rows: numpy has no arrays of 4 bits."""
    count = math.prod(shape)
    empty = bytes(-(-count // 2) if kind == _INT4 else count)
    return to.large(f"zero.{kind}.{'x'.join(map(str, shape))}", kind, list(shape), lambda: empty)


def _code_bytes(stored: StoredMatrix) -> bytes:
    """Codes as ONNX wants them: [in, out], 4-bit ones two to a byte."""
    transposed = np.ascontiguousarray(stored.codes.T)
    if stored.bits != 4:
        return transposed.tobytes()
    halves = (transposed.reshape(-1) & 15).astype(np.uint8)
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    return (halves[::2] | halves[1::2] << 4).tobytes()


def _gemm(to: OnnxWriter, node: Node, out: str) -> None:
    """It takes rows only."""
    x, result = node.inputs[0], node.outputs[0]
    assert x is not None
    name = _weight(node)
    if f"{name}.rows" not in to.constants:
        stored = to.weights.matrix(name)
        to.constants[f"{name}.rows"] = _rows(to, f"{name}.rows", stored.codes, stored.scales)
    rows, flat = to.input(node, 0), len(x.shape) == 2
    if not flat:
        rows = f"{result.name}.rows"
        shape = to.indices(f"{rows}.shape", -1, largest(x.shape)[-1])
        to.node("Reshape", [to.input(node, 0), shape], f"{rows}.exact")
        to.quantize(f"{rows}.exact", rows, to.encodings[x.name])
        rows = f"{rows}.number"
    made = out if flat else f"{result.name}.sums.exact"
    to.node("Gemm", [rows, to.constants[f"{name}.rows"], *_bias(to, node)], made, transB=1)
    if not flat:
        to.quantize(made, f"{result.name}.sums", to.encodings[result.name])
        shape = to.indices(f"{out}.shape", *largest(result.shape))
        to.node("Reshape", [f"{result.name}.sums.number", shape], out)


def _rows(to: OnnxWriter, name: str, codes: Array, scales: Array, axis: int = 0) -> str:
    """Codes of 8 bits with one scale for each entry of an axis; or floats, as they are."""
    if codes.dtype == np.float16:
        return to.large(f"{name}.number", "float16", list(codes.shape), codes.tobytes)
    stored = to.large(f"{name}.codes", "int8", list(codes.shape), codes.tobytes)
    scale = to.small(f"{name}.scale", scales.reshape(-1).astype(np.float32))
    zero = to.small(f"{name}.zero", np.zeros(codes.shape[axis], np.int8))
    return to.node("DequantizeLinear", [stored, scale, zero], f"{name}.number", axis=axis)


def _bias(to: OnnxWriter, node: Node) -> list[str]:
    """A layer's bias in whole numbers of 32 bits, in steps of its sums; or none."""
    source, bias = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return []
    assert source is not None
    if to.encodings[source.name].bits == FLOATS:
        return [to.input(node, 2)]
    steps = to.weights.matrix(_weight(node)).scales.reshape(-1).astype(np.float64)
    steps = (steps * to.encodings[source.name].scale).astype(np.float32)
    return [_whole(to, f"{node.outputs[0].name}.bias", to.array(bias), steps)]


def _whole(to: OnnxWriter, name: str, array: Array, steps: Array | np.float32) -> str:
    """Numbers as whole ones of 32 bits, with one step or one for each."""
    codes = np.clip(np.rint(array.astype(np.float64) / steps), -(2**31), 2**31 - 1)
    whole = to.small(name, codes.astype(np.int32))
    scale = to.small(f"{name}.scale", np.asarray(steps, np.float32))
    zero = to.small(f"{name}.zero", np.zeros(np.shape(steps), np.int32))
    axis = {"axis": 0} if np.ndim(steps) else {}
    return to.node("DequantizeLinear", [whole, scale, zero], f"{name}.number", **axis)


def _conv2d(to: OnnxWriter, node: Node, out: str) -> None:
    window, name = Window.of(node.op, node.attrs), _weight(node)
    kernel = f"{name}.kernel"
    if kernel not in to.constants:
        stored = to.weights.matrix(name)
        kh, kw = window.kernel
        codes = stored.codes.reshape(len(stored.codes), kh, kw, -1).transpose(0, 3, 1, 2)
        to.constants[kernel] = _rows(to, kernel, np.ascontiguousarray(codes), stored.scales)
    groups, dilations = attr_int(node.attrs, "groups", 1), list(window.dilation)
    inputs = [to.image(node), to.constants[kernel], *_bias(to, node)]
    to.node("Conv", inputs, out, group=groups, dilations=dilations, **_sizes(window))


def _conv_transpose2d(to: OnnxWriter, node: Node, out: str) -> None:
    """Its kernel is [in, out, height, width]."""
    window, name = Window.of(node.op, node.attrs), _weight(node)
    kernel = f"{name}.kernel"
    if kernel not in to.constants:
        stored = to.weights.matrix(name)
        kh, kw = window.kernel
        codes = stored.codes.reshape(len(stored.codes), kh, kw, -1).transpose(3, 0, 1, 2)
        to.constants[kernel] = _rows(to, kernel, np.ascontiguousarray(codes), stored.scales, 1)
    inputs = [to.image(node), to.constants[kernel], *_bias(to, node)]
    to.node("ConvTranspose", inputs, out, **_sizes(window))


def _sizes(window: Window) -> dict[str, Any]:
    top, bottom, left, right = window.padding
    return {
        "kernel_shape": list(window.kernel),
        "strides": list(window.stride),
        "pads": [top, left, bottom, right],
    }


def _max_pool2d(to: OnnxWriter, node: Node, out: str) -> None:
    window, ceil = Window.of(node.op, node.attrs), attr_int(node.attrs, "ceil_mode", 0)
    more = {"ceil_mode": ceil, "dilations": list(window.dilation)}
    to.node("MaxPool", [to.image(node)], out, **more, **_sizes(window))


def _avg_pool2d(to: OnnxWriter, node: Node, out: str) -> None:
    window, ceil = Window.of(node.op, node.attrs), attr_int(node.attrs, "ceil_mode", 0)
    counted = attr_int(node.attrs, "count_include_pad", 1)
    more = {"ceil_mode": ceil, "count_include_pad": counted}
    to.node("AveragePool", [to.image(node)], out, **more, **_sizes(window))


def _rms_norm(to: OnnxWriter, node: Node, out: str) -> None:
    inputs = [to.input(node, i) for i in (0, 1)]
    to.node("RMSNormalization", inputs, out, epsilon=attr_float(node.attrs, "eps"))


def _layer_norm(to: OnnxWriter, node: Node, out: str) -> None:
    """A gain alone has 8 bits. A shift has 32 where all else has 8, and 16 where all has 16."""
    x, shift = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    assert x is not None
    bits = to.encodings[x.name].bits
    if bits == FLOATS:
        inputs = [to.input(node, i) for i in range(len(node.inputs))]
        to.node("LayerNormalization", inputs, out, epsilon=attr_float(node.attrs, "eps"))
        return
    wide = bits == 16
    inputs = [to.input(node, 0), to.input(node, 1, 16 if wide and shift else 8)]
    if shift is not None and wide:
        inputs.append(to.input(node, 2))
    elif shift is not None:
        gain = constant_encoding(to.array(node.inputs[1]), 8)
        steps = np.float32(to.encodings[x.name].scale * gain.scale)
        inputs.append(_whole(to, f"{node.outputs[0].name}.shift", to.array(shift), steps))
    to.node("LayerNormalization", inputs, out, epsilon=attr_float(node.attrs, "eps"))


def _weight(node: Node) -> str:
    value = node.inputs[1]
    assert value is not None and value.weight is not None
    return value.weight.name


EMITTERS |= {
    "linear": _linear,
    "conv2d": _conv2d,
    "conv_transpose2d": _conv_transpose2d,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
}
