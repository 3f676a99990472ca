"""Every op that the NPU takes in a module, in shapes that vision models have: small graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_rows import NpuRow
from numpy.typing import NDArray

from satchel.backends.qnn.weights import StoredMatrix
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Value
from satchel.quantize.static import quantize_rows
from support.arrays import normal

Array = NDArray[Any]

_IMAGE = normal(1, 12, 10, 16)
_WHOLE = {8: 1.0, 16: 4.0}  # codes by which the chip may differ, of 256 and of 65,536
_COARSE = {"sqrt": 80.0, "div": 20.0, "softmax": 13.0, "layer_norm": 20.0, "matmul": 400.0}
_COARSE |= {"rms_norm": 40.0, "sigmoid": 40.0, "tanh": 6.0, "gelu": 40.0}


def per_row(name: str, rows: int, cols: int) -> StoredMatrix:
    codes, scales = quantize_rows(normal(rows, cols, seed=name))
    return StoredMatrix(codes, scales[:, None], None, 8)


def module_rows(bits: int) -> list[NpuRow]:
    rows = [*_layers(), *_each(), *_reductions(), *_moves()]
    for row in rows:
        row.bits = bits
        steps = _COARSE.get(row.op, _WHOLE[16]) if bits == 16 else _WHOLE[8]
        row.tolerance = steps / (2**bits - 1)
    return rows


def _plain(op: str, name: str, *inputs: Array, **attrs: Any) -> NpuRow:
    return NpuRow(op, name, list(inputs), lambda b, v: b.node(op, *v, **attrs))


def _convolution(name: str, out: int, kernel: int, groups: int = 1, **rest: Any) -> NpuRow:
    columns = kernel * kernel * 16 // groups
    stride, bias = rest.pop("stride", 1), rest.pop("bias", True)

    def build(b: GraphBuilder, v: list[Value]) -> Value:
        inputs = [v[0], b.weight("w", (out, columns))]
        inputs += [b.weight("bias", (out,), "vector")] if bias else []
        around = (kernel // 2,) * 4
        window = {"kernel": (kernel, kernel), "stride": (stride, stride), "padding": around}
        return b.node("conv2d", *inputs, groups=groups, **window, **rest)

    matrices, vectors = {"w": per_row("w", out, columns)}, {"bias": normal(out)}
    return NpuRow("conv2d", name, [_IMAGE], build, matrices=matrices, vectors=vectors)


def _transposed(name: str, out: int, kernel: int, padding: tuple[int, ...], **rest: Any) -> NpuRow:
    def build(b: GraphBuilder, v: list[Value]) -> Value:
        inputs = [
            v[0],
            b.weight("w", (out, kernel * kernel * 16)),
            b.weight("bias", (out,), "vector"),
        ]
        window = {"kernel": (kernel, kernel), "padding": padding, **rest}
        return b.node("conv_transpose2d", *inputs, **window)

    matrices, vectors = {"w": per_row("w", out, kernel * kernel * 16)}, {"bias": normal(out)}
    return NpuRow("conv_transpose2d", name, [_IMAGE], build, matrices=matrices, vectors=vectors)


def _linear(name: str, x: Array, bias: bool) -> NpuRow:
    def build(b: GraphBuilder, v: list[Value]) -> Value:
        inputs = [v[0], b.weight("w", (40, 64))]
        return b.node("linear", *inputs, *([b.weight("bias", (40,), "vector")] if bias else []))

    matrices, vectors = {"w": per_row("w", 40, 64)}, {"bias": normal(40)}
    return NpuRow("linear", name, [x], build, matrices=matrices, vectors=vectors)


def _norm(op: str, shift: bool) -> NpuRow:
    def build(b: GraphBuilder, v: list[Value]) -> Value:
        names = ["gain", "shift"] if shift else ["gain"]
        return b.node(op, v[0], *(b.weight(n, (64,), "vector") for n in names), eps=1e-5)

    vectors = {"gain": 1 + 0.2 * normal(64), "shift": normal(64, seed=1)}
    if op == "layer_norm" and not shift:
        vectors["gain"] = np.ones(64, np.float32)  # all that 16-bit graphs have without a shift
    name = "shift" if shift else "gain"
    return NpuRow(op, name, [3 * normal(2, 5, 64)], build, vectors=vectors)


def _layers() -> list[NpuRow]:
    return [
        _convolution("3x3", 24, 3),
        _convolution("relu", 24, 3, activation="relu"),
        _convolution("1x1", 24, 1, bias=False),
        _convolution("depthwise", 16, 3, 16, stride=2),
        _convolution("groups", 32, 3, 4),
        _convolution("dilated", 8, 3, dilation=(2, 2)),
        _transposed("2x2", 8, 2, (0, 0, 0, 0), stride=(2, 2)),
        _transposed("3x3", 8, 3, (1, 1, 1, 1)),
        _transposed("padded", 24, 3, (1, 0, 1, 0), stride=(2, 2), activation="relu"),
        _linear("rows", normal(5, 64), True),
        _linear("rank3", normal(3, 5, 64), True),
        _linear("no_bias", normal(3, 5, 64), False),
        _norm("layer_norm", True),
        _norm("layer_norm", False),
        _norm("rms_norm", False),
        _plain("matmul", "heads", normal(4, 3, 5, 7), normal(4, 3, 7, 6, seed=1)),
    ]


def _each() -> list[NpuRow]:
    image, row = _IMAGE, np.abs(_IMAGE[:, :1])
    return [
        *(_plain(op, "image", 3 * image) for op in ("hardswish", "hardsigmoid", "relu", "gelu")),
        *(_plain(op, "image", image) for op in ("exp", "abs", "neg", "sigmoid", "tanh")),
        _plain("sqrt", "image", np.abs(image) + np.float32(0.1)),
        _plain("clamp", "both", 6 * image, low=0.0, high=6.0),
        _plain("clamp", "low", image, low=-0.5),
        _plain("clamp", "high", image, high=0.5),
        _plain("div", "broadcast", image, row + np.float32(0.5)),
        *(_plain(op, "broadcast", image, row) for op in ("add", "sub", "mul")),
        *(_plain(op, "broadcast", image, row) for op in ("maximum", "minimum")),
        _plain("add", "windows", normal(1, 4, 3, 5, 5), normal(1, 4, 1, 5, 5, seed=1)),
        _plain("affine", "scale", image, scale=0.125),
        _plain("affine", "shift", image, shift=-1.5),
        _plain("softmax", "windows", 4 * normal(4, 3, 5, 7), axis=3),
    ]


def _reductions() -> list[NpuRow]:
    pool = {"kernel": (3, 3), "stride": (2, 2)}
    return [
        _plain("reduce_mean", "pixels", _IMAGE, axes=(1, 2), keepdims=1),
        *(
            _plain(op, "last", _IMAGE, axes=(3,), keepdims=0)
            for op in ("reduce_mean", "reduce_sum", "reduce_max", "reduce_min")
        ),
        _plain("max_pool2d", "padded", _IMAGE, padding=(1, 1, 1, 1), **pool),
        _plain("max_pool2d", "ceil", _IMAGE, ceil_mode=1, **pool),
        _plain("avg_pool2d", "padded", _IMAGE, padding=(1, 1, 1, 1), **pool),
        _plain("avg_pool2d", "inside", _IMAGE, padding=(1, 1, 1, 1), count_include_pad=0, **pool),
    ]


def _taken(name: str, numbers: Array, axis: int) -> NpuRow:
    def build(b: GraphBuilder, v: list[Value]) -> Value:
        return b.node("take", v[0], b.constant("numbers", numbers.astype(np.int32)), axis=axis)

    return NpuRow("take", name, [_IMAGE], build)


def _moves() -> list[NpuRow]:
    five = normal(2, 3, 4, 5, 6)
    return [
        _taken("roll", np.roll(np.arange(12), 3), 1),
        _taken("every_other", np.arange(0, 10, 2), 2),
        _plain("pad", "image", _IMAGE, before=(0, 1, 2, 0), after=(0, 0, 1, 0)),
        _plain("expand", "row", _IMAGE[:, :1], shape=(1, 12, 10, 16)),
        _plain("transpose", "rank5", five, perm=(0, 2, 1, 4, 3)),
        _plain("slice", "rank5", five, axis=2, start=1, stop=2),
        _plain("reshape", "rank5", five, shape=(6, 20, 6)),
        _plain("concat", "class", normal(1, 1, 8), normal(1, 6, 8, seed=1), axis=1),
    ]
