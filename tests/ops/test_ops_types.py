"""Type rules: what each op refuses, and what it makes of sizes known only at run time."""

from __future__ import annotations

from typing import Any

import pytest

from satchel.errors import GraphError
from satchel.graph.ir import DType, Sym, TensorType
from satchel.graph.ops import OPS, find_op, infer_types

S, T = Sym("S", 8), Sym("T", 8)


def f32(*shape: Any) -> TensorType:
    return TensorType(shape)


def f16(*shape: Any) -> TensorType:
    return TensorType(shape, DType.f16)


def u8(*shape: Any) -> TensorType:
    return TensorType(shape, DType.u8)


def boolean(*shape: Any) -> TensorType:
    return TensorType(shape, DType.boolean)


def i8(*shape: Any) -> TensorType:
    return TensorType(shape, DType.i8)


def i32(*shape: Any) -> TensorType:
    return TensorType(shape, DType.i32)


def i64(*shape: Any) -> TensorType:
    return TensorType(shape, DType.i64)


UNARY = ["neg", "abs", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "relu"]
UNARY += ["sigmoid", "silu", "gelu", "gelu_tanh", "floor", "round", "hardsigmoid", "hardswish"]
UNARY += "tan asin acos atan sinh cosh asinh acosh atanh exp2 expm1 log1p log2 log10".split()
UNARY += ["erfinv", "trunc"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod"]
REDUCTIONS = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"]

POOLS = ["max_pool2d", "avg_pool2d"]
IMAGE = f32(1, 8, 8, 2)
WHERE = (i32(S), i32(S))  # the sequence and the position of each token

CONVOLUTIONS_REFUSED: list[tuple[list[TensorType | None], dict[str, Any], str]] = [
    ([f16(1, 8, 8, 2), f32(4, 18)], {}, "must be f32"),
    ([f32(8, 8, 2), f32(4, 18)], {}, "N, H, W, C"),
    ([f32(1, 8, 8, S), f32(4, 18)], {}, "the channels are symbolic"),
    ([IMAGE, f32(4, 17)], {}, "weight does not fit"),
    ([IMAGE, f32(18)], {}, "must be f32 .out, in."),
    ([IMAGE, f32(4, 18), f32(3)], {}, "bias does not fit"),
    ([IMAGE, f32(4, 18)], {"kernel": (3,)}, "kernel must be two"),
    ([IMAGE, f32(4, 18)], {"stride": (0, 1)}, "stride must be two"),
    ([IMAGE, f32(4, 18)], {"dilation": (1, 1 << 30)}, "dilation must be two"),
    ([IMAGE, f32(4, 18)], {"padding": (1, 1)}, "top, bottom"),
    ([IMAGE, f32(4, 18)], {"padding": (-1, 1, 1, 1)}, "negative"),
    ([IMAGE, f32(4, 18)], {"groups": 4}, "do not divide"),
    ([IMAGE, f32(4, 18)], {"activation": "swishy"}, "no activation 'swishy'"),
]

PIXELS = u8(1, 8, 8, 2)
INTEGERS_REFUSED: list[tuple[list[TensorType | None], dict[str, Any], str]] = [
    (types, {"kernel": (1, 1)} | attrs, message)
    for types, attrs, message in [
        ([f32(1, 8, 8, 2), i8(4, 2), f32(4)], {}, "x must be u8"),
        ([PIXELS, i8(4, 2), f32(3)], {}, "scale does not fit"),
        ([PIXELS, i8(4, 2), f32(4), f32(3)], {}, "bias does not fit"),
        ([PIXELS, i8(4, 2), f32(4), None, u8(3)], {"residual_scale": 1.0}, "residual must be u8"),
        ([PIXELS, i8(4, 2), f32(4), None, u8(1, 8, 8, 4)], {}, "residual_scale must be"),
        ([PIXELS, i8(4, 2), f32(4)], {"x_zero": 256}, "x_zero is not a code"),
        ([PIXELS, i8(4, 2), f32(4)], {"out_zero": -1}, "out_zero is not a code"),
        ([PIXELS, i8(4, 2), f32(4)], {"out_scale": -1.0}, "above 0"),
        ([PIXELS, i8(4, 2), f32(4)], {"activation": "swishy"}, "no activation"),
    ]
]

STEPS = {"a_scale": 1.0, "b_scale": 1.0, "out_scale": 1.0}
MEAN_STEPS = {"x_scale": 1.0, "out_scale": 1.0}

Rule = tuple[str, list[TensorType | None], dict[str, Any], str]

REFUSED: list[Rule] = [
    *((op, [i32(3)], {}, "must be f32") for op in UNARY),
    *((op, [f32(3), f16(3)], {}, "both inputs must be f32") for op in BINARY),
    *((op, [f32(3), f32(4)], {}, "do not broadcast") for op in BINARY),
    *((op, [f32(S), f32(T)], {}, "do not broadcast") for op in BINARY),
    *((op, [f32(S), f32(8)], {}, "do not broadcast") for op in BINARY),
    *((op, [f32(3), None], {}, "a required input is missing") for op in BINARY),
    ("silu_mul", [f32(3), f32(1)], {}, "must match"),
    ("gelu_tanh_mul", [f16(3), f16(3)], {}, "must match"),
    ("affine", [i32(3)], {}, "must be f32"),
    ("affine", [f32(3)], {"scale": "2"}, "must be a number"),
    ("affine", [f32(3)], {"shift": (1,)}, "must be a number"),
    ("cast", [f32(3)], {}, "must be a string"),
    ("cast", [f32(3)], {"dtype": "f64"}, "no dtype"),
    ("cast", [f32(3)], {"dtype": "i8"}, "not supported"),
    ("cast", [i8(3)], {"dtype": "f32"}, "not supported"),
    ("reshape", [f32(6)], {"shape": (4,)}, "another size"),
    ("reshape", [f32(6)], {"shape": (-1, 4)}, "another size"),
    ("reshape", [f32(S, 6)], {"shape": (-1, -1)}, "bad shape"),
    ("count", [f32(6)], {"axis": 0, "steps": (1, 2)}, "bad steps"),
    ("reshape", [f32(6)], {"shape": (6, 0)}, "nothing to keep"),
    ("reshape", [f32(6)], {}, "must be a tuple"),
    ("reshape", [f32(S, 6)], {"shape": (8, 6)}, "another size"),
    ("reshape", [f32(S, 6)], {"shape": (6, 0)}, "another size"),
    ("transpose", [f32(2, 3)], {"perm": (0,)}, "bad perm"),
    ("transpose", [f32(2, 3)], {"perm": (0, 0)}, "bad perm"),
    ("slice", [f32(5)], {"axis": 1, "start": 0, "stop": 1}, "no axis"),
    ("slice", [f32(5)], {"axis": 0, "start": 2, "stop": 2}, "outside"),
    ("slice", [f32(5)], {"axis": 0, "start": 0, "stop": 6}, "outside"),
    ("slice", [f32(5)], {"axis": 0, "start": -1, "stop": 2}, "outside"),
    ("slice", [f32(5)], {"axis": 0, "start": 0}, "stop must be an integer"),
    ("slice", [f32(S)], {"axis": 0, "start": 0, "stop": 1}, "symbolic"),
    ("concat", [f32(2), f32(3, 1)], {"axis": 0}, "ranks differ"),
    ("concat", [f32(2), f16(3)], {"axis": 0}, "differ"),
    ("concat", [f32(2, 3), f32(2, 4)], {"axis": 0}, "differ"),
    ("concat", [f32(2), None], {"axis": 0}, "missing"),
    ("concat", [f32(2)], {"axis": 1}, "no axis"),
    ("concat", [f32(2)] * 9, {"axis": 0}, "1 to 8 inputs"),
    ("take_rows", [f32(), i32(1)], {}, "no dimension"),
    ("take_rows", [f32(3), i32(1, 1)], {}, "bad rows"),
    ("take_rows", [f32(3), f32(1)], {}, "bad rows"),
    ("clamp", [i32(3)], {}, "must be f32"),
    ("clamp", [f32(3)], {"low": "0"}, "must be a number"),
    ("clamp", [f32(3)], {"low": 2.0, "high": 1.0}, "above"),
    ("compare", [f32(3), i32(3)], {"kind": "lt"}, "f32, i32 or i64"),
    ("compare", [f32(3), f32(3)], {"kind": "like"}, "no comparison"),
    ("compare", [f32(3), f32(4)], {"kind": "lt"}, "do not broadcast"),
    ("where", [f32(3), f32(3), f32(3)], {}, "must be bool"),
    ("where", [boolean(3), f32(3), i32(3)], {}, "f32, i32 or i64"),
    ("where", [boolean(3), f32(4), f32(4)], {}, "do not broadcast"),
    ("expand", [f32(2)], {"shape": (3,)}, "do not broadcast"),
    ("expand", [f32(3, 2)], {"shape": (2,)}, "does not fit"),
    ("expand", [f32(1)], {"shape": (-1,)}, "bad shape"),
    ("expand", [f32(1), f32(S)], {"shape": (-2,)}, "bad shape"),
    ("expand", [f32(1)], {"shape": (0,)}, "bad shape"),
    ("take", [f32(3), i32(1)], {"axis": 1}, "no axis"),
    ("take", [f32(3), i32(1, 1)], {"axis": 0}, "must be i32"),
    ("take", [f32(3), f32(1)], {"axis": 0}, "must be i32"),
    ("gather", [f32(3), i32(1)], {"axis": 1}, "no axis"),
    ("gather", [f32(3), i32(1, 1)], {"axis": 0}, "of x's rank"),
    ("gather", [f32(3, 2), i32(1, 3)], {"axis": 0}, "too many"),
    ("gather", [f32(3, S), i32(1, T)], {"axis": 0}, "too many"),
    ("pad", [f32(3)], {"before": (1,), "after": (1, 1)}, "bad padding"),
    ("pad", [f32(3)], {"before": (-1,), "after": (1,)}, "bad padding"),
    ("pad", [f16(3)], {"before": (1,), "after": (1,)}, "must be f32"),
    ("pad", [u8(3)], {"before": (1,), "after": (1,), "value": 256}, "is no u8"),
    ("pad", [i32(3)], {"before": (1,), "after": (1,), "value": 0.5}, "is no i32"),
    ("argmax", [i32(3)], {"axis": 0}, "must be f32"),
    ("argmax", [f32(3)], {"axis": 1}, "no axis"),
    ("quantize", [u8(3)], {"scale": 1.0}, "must be f32"),
    ("quantize", [f32(3)], {"scale": 0.0}, "out of range"),
    ("quantize", [f32(3)], {"scale": 1.0, "zero": 256}, "not a code"),
    ("dequantize", [f32(3)], {"scale": 1.0}, "must be u8"),
    ("dequantize", [u8(3)], {"scale": 1e31}, "out of range"),
    ("lookup", [f32(3), u8(256)], {}, "must be u8"),
    ("lookup", [u8(3), u8(255)], {}, "u8 .256."),
    *((op, [u8(3), f32(3)], STEPS, "must be u8") for op in ("qadd", "qmul")),
    *((op, [u8(3), u8(4)], STEPS, "do not broadcast") for op in ("qadd", "qmul")),
    *((op, [u8(3), u8(3)], {**STEPS, "b_scale": -1.0}, "b_scale") for op in ("qadd", "qmul")),
    *((op, [u8(3), u8(3)], {**STEPS, "activation": "x"}, "no activ") for op in ("qadd", "qmul")),
    ("qmean", [f32(3)], {"axes": (0,), **MEAN_STEPS}, "must be u8"),
    ("qmean", [u8(3)], {"axes": (1,), **MEAN_STEPS}, "bad axes"),
    ("qmean", [u8(3)], {"axes": (0,), "x_scale": 1.0}, "out_scale"),
    *((op, [f16(3)], {"axes": (0,)}, "must be f32") for op in REDUCTIONS),
    *((op, [f32(3)], {"axes": (1,)}, "bad axes") for op in REDUCTIONS),
    *((op, [f32(3)], {"axes": (-1,)}, "bad axes") for op in REDUCTIONS),
    *((op, [f32(3)], {"axes": (0, 0)}, "bad axes") for op in REDUCTIONS),
    ("rms_norm", [f32(3), f32(4)], {"eps": 0.1}, "as long as"),
    ("rms_norm", [f32(3), f16(3)], {"eps": 0.1}, "as long as"),
    ("rms_norm", [f32(), f32(1)], {"eps": 0.1}, "must be f32"),
    ("rms_norm", [f32(3), f32(3)], {}, "eps must be a number"),
    ("rms_norm", [f32(3), f32(3)], {"eps": -0.1}, "not be negative"),
    ("layer_norm", [f32(3), f32(3), f32(1)], {"eps": 0.1}, "as long as"),
    ("layer_norm", [i32(3), f32(3)], {"eps": 0.1}, "must be f32"),
    ("softmax", [f32(3)], {"axis": 1}, "no axis"),
    ("hadamard", [f32(12)], {"block": 3}, "no power of two"),
    ("hadamard", [f32(12)], {"block": 0}, "no power of two"),
    ("hadamard", [f32(12)], {"block": 8}, "blocks of 8 do not fit"),
    ("hadamard", [f32()], {"block": 1}, "must be f32"),
    ("hadamard", [i32(8)], {"block": 8}, "must be f32"),
    ("hadamard", [f32(8)], {}, "must be an integer"),
    ("softmax", [f32(3)], {"axis": -2}, "no axis"),
    ("softmax", [f32()], {}, "no axis"),
    ("softmax", [i32(3)], {}, "must be f32"),
    ("linear", [f32(4), f32(4)], {}, "must be f32 .out, in."),
    ("linear", [f32(4), f16(3, 4)], {}, "must be f32 .out, in."),
    ("linear", [f16(4), f32(3, 4)], {}, "must be f32"),
    ("linear", [f32(), f32(3, 4)], {}, "must be f32"),
    ("linear", [f32(5), f32(3, 4)], {}, "inner sizes differ"),
    ("linear", [f32(4), f32(3, 4), f32(4)], {}, "bias does not fit"),
    ("linear", [f32(4), f32(3, 4), i32(3)], {}, "bias does not fit"),
    ("linear", [f32(4), f32(3, 4)], {"activations": "int4"}, "no activations"),
    ("linear", [f32(4), f32(3, 4)], {"activation": "swishy"}, "no activation 'swishy'"),
    ("embedding", [f32(4), f32(9, 4)], {}, "must be i32"),
    ("embedding", [i32(4), f32(9)], {}, "rows, width"),
    ("embedding", [i32(4), i32(9, 4)], {}, "rows, width"),
    ("matmul", [f32(4), f32(4, 2)], {}, "rank 2"),
    ("matmul", [f32(3, 4), f32(3, 2)], {}, "inner sizes differ"),
    ("matmul", [f32(3, 4), f16(4, 2)], {}, "must be f32"),
    ("matmul", [f32(2, 3, 4), f32(3, 4, 2)], {}, "do not broadcast"),
    *(
        (op, types, {"kernel": (3, 3), **attrs}, message)
        for op in ("conv2d", "conv_transpose2d")
        for types, attrs, message in CONVOLUTIONS_REFUSED
    ),
    ("conv2d", [IMAGE, f32(4, 18)], {"kernel": (3, 3), "padding": (0, -1, 0, 0)}, "negative"),
    ("conv2d", [IMAGE, f32(4, 18)], {"kernel": (9, 1)}, "larger than the image"),
    ("conv2d", [IMAGE, f32(4, 2), None, f32(1, 8, 8, 3)], {"kernel": (1, 1)}, "like the result"),
    (
        "conv2d",
        [IMAGE, f32(4, 1), None, f32(1, 8, 8, 4)],
        {"kernel": (1, 1), "groups": 2},
        "groups take no residual",
    ),
    (
        "conv_transpose2d",
        [IMAGE, f32(4, 2)],
        {"kernel": (1, 1), "padding": (9, 0, 0, 0)},
        "nothing",
    ),
    *((op, [i32(1, 8, 8, 2)], {"kernel": (3, 3)}, "must be f32") for op in POOLS),
    *((op, [f32(8, 8, 2)], {"kernel": (3, 3)}, "N, H, W, C") for op in POOLS),
    *((op, [IMAGE], {"kernel": (3,)}, "kernel must be two") for op in POOLS),
    *((op, [IMAGE], {"kernel": (9, 9)}, "larger than the image") for op in POOLS),
    *((op, [IMAGE], {"kernel": (2, 2), "padding": (2, 0, 0, 0)}, "as large as") for op in POOLS),
    ("avg_pool2d", [IMAGE], {"kernel": (2, 2), "divisor": -1}, "negative"),
    *(("qconv2d", *rule) for rule in INTEGERS_REFUSED),
    ("qconv2d", [u8(8, 8, 2), i8(4, 2), f32(4)], {"kernel": (1, 1)}, "N, H, W, C"),
    ("qconv2d", [u8(1, 8, 8, 2), i8(4, 3), f32(4)], {"kernel": (1, 1)}, "weight does not fit"),
    ("qconv2d", [u8(1, 8, 8, 2), f32(4, 2), f32(4)], {"kernel": (1, 1)}, "must be i8"),
    ("qlinear", [u8(3), i8(4, 2), f32(4)], {}, "inner sizes differ"),
    ("qlinear", [u8(2), f32(4, 2), f32(4)], {}, "must be i8"),
    ("qlinear", [u8(70000), i8(4, 70000), f32(4)], {}, "too many columns"),
    ("attention_full", [f32(1, 2, 2, 8)] * 3, {}, "scale must be"),
    ("attention_full", [f32(2, 2, 8)] * 3, {"scale": 1.0}, "rank 4"),
    ("attention_full", [f32(1, 2, S, 8)] * 3, {"scale": 1.0}, "must be known"),
    (
        "attention_full",
        [f32(1, 2, 2, 8), f32(1, 3, 2, 8), f32(1, 2, 2, 8)],
        {"scale": 1.0},
        "not fit",
    ),
    ("attention_full", [*[f32(4, 2, 2, 8)] * 3, f32(2, 2, 2)], {"scale": 1.0}, "bad bias"),
    ("attention_full", [*[f32(4, 2, 2, 8)] * 3, f32(3, 1, 2, 2)], {"scale": 1.0}, "bias does not"),
    ("attention_full", [*[f32(S, 2, 2, 8)] * 3, f32(2, 1, 2, 2)], {"scale": 1.0}, "bias does not"),
    ("attention_qkv", [f32(1, 2, 2, 2, 8)], {"scale": 1.0}, "B, T, 3, H, D"),
    ("attention_qkv", [f32(1, 2, 3, 2, S)], {"scale": 1.0}, "must be known"),
    ("attention_qkv", [f32(1, 2, 3, 2, 8)], {}, "scale must be"),
    ("attention_qkv", [f32(1, 2, 3, 2, 8), f32(1, 2, 2, 3)], {"scale": 1.0}, "bias does not"),
    ("attention_qkv", [f32(2, 2, 3, 2, 8), None, i32(3, 1)], {"scale": 1.0}, "bad rows"),
    ("attention_qkv", [f32(2, 2, 3, 2, 8), None, f32(2, 2)], {"scale": 1.0}, "bad rows"),
    ("attention_qkv", [f32(2, 2, 3, 2, 8), None, None, i32(2)], {"scale": 1.0}, "bad kinds"),
    (
        "attention_qkv",
        [f32(4, 2, 3, 2, 8), f32(2, 2, 2, 2), None, i32(3)],
        {"scale": 1.0},
        "bad kinds",
    ),
    (
        "attention_qkv",
        [f32(2, 2, 3, 2, 8), f32(2, 2, 2, 2), i32(4, 1)],
        {"scale": 1.0},
        "bias does not",
    ),
    ("qattention_qkv", [f32(1, 2, 3, 2, 8), f32(3, 2)], {"scale": 1.0}, "need u8"),
    ("qattention_qkv", [u8(1, 2, 3, 2, 8), f32(3, 1)], {"scale": 1.0}, "scales must be"),
    ("qattention_qkv", [u8(1, 2, 3, 2, 6), f32(3, 2)], {"scale": 1.0}, "whole fours"),
    ("qattention_qkv", [u8(1, 3000, 3, 2, 8), f32(3, 2)], {"scale": 1.0}, "too many tokens"),
    ("qattention_qkv", [u8(1, 2, 3, 2, 8), f32(3, 2)], {}, "scale must be"),
    (
        "qattention_qkv",
        [u8(1, 2, 3, 2, 8), f32(3, 2)],
        {"scale": 1.0, "out_scale": 1.0, "out_zero": 256},
        "not a code",
    ),
    ("layer_norm", [f32(3), f32(3)], {"eps": 0.1, "out_scale": 0.0}, "out of range"),
    ("rope_table", [i32(S, 1), f32(4)], {}, "positions must be"),
    ("rope_table", [f32(S), f32(4)], {}, "positions must be"),
    ("rope_table", [i32(S), f16(4)], {}, "frequencies must be"),
    ("rope_table", [i32(S), f32(S)], {}, "must be known"),
    ("rope_table", [i32(S), f32(4)], {"scale": "1"}, "must be a number"),
    ("rope", [f32(S, 8), f32(S, 8)], {}, "x must be"),
    ("rope", [f32(S, 2, 8), f32(S)], {}, "table must be"),
    ("rope", [f32(S, 2, 8), f16(S, 8)], {}, "table must be"),
    ("rope", [f32(S, 2, 8), f32(T, 8)], {}, "differ in length"),
    ("rope", [f32(S, 2, 8), f32(S, 10)], {}, "too wide"),
    ("rope", [f32(S, 2, 8), f32(S, 5)], {}, "too wide"),
    ("rope", [f32(S, 2, S), f32(S, 8)], {}, "must be known"),
    ("cache_write", [f32(2, 9, 8), f32(S, 3, 8), i32(S), i32(S)], {}, "need cache"),
    ("cache_write", [f32(2, 9, 8), f32(S, 2, 4), i32(S), i32(S)], {}, "need cache"),
    ("cache_write", [f32(2, 8), f32(S, 2, 8), i32(S), i32(S)], {}, "need cache"),
    ("cache_write", [i32(2, 9, 8), f32(S, 2, 8), i32(S), i32(S)], {}, "bad cache dtype"),
    ("cache_write", [u8(2, 9, 8), f32(S, 2, 8), i32(S), i32(S)], {}, "need cache"),
    ("cache_write", [f16(2, 9, 16), f32(S, 2, 8), i32(S), i32(S)], {}, "need cache"),
    ("cache_write", [u8(2, 9, 16), u8(S, 2, 8), i32(S), i32(S)], {}, "bad dtype"),
    ("cache_write", [f16(2, 9, 8), f16(S, 2, 8), i32(S), i32(S)], {}, "bad dtype"),
    ("cache_write", [f16(2, 9, 8), f32(S, 2, 8), i32(2), i32(S)], {}, "sequence must be"),
    ("cache_write", [f16(2, 9, 8), f32(S, 2, 8), i32(S), i32(T)], {}, "position must be"),
    ("cache_write", [f16(2, 9, 8), f32(S, 2, 8), i32(S), i32(S), f32(S)], {}, "parents must be"),
    ("cache_move", [f32(2, 9), i32(S), i32(1), i32(1)], {}, "need a cache"),
    ("cache_move", [i32(2, 9, 8), i32(S), i32(1), i32(1)], {}, "need a cache"),
    ("cache_move", [f16(2, 9, 8), f32(S), i32(1), i32(1)], {}, "rows must be"),
    ("cache_move", [f16(2, 9, 8), i32(S, 1), i32(1), i32(1)], {}, "rows must be"),
    ("cache_move", [f16(2, 9, 8), i32(S), i32(2), i32(1)], {}, "sequence must be"),
    ("cache_move", [f16(2, 9, 8), i32(S), i32(1), i32(2)], {}, "position must be"),
    (
        "attention",
        [f32(S, 4, 8), f32(2, 9, 8), f32(2, 9, 8), i32(S), i32(S), i32(T)],
        {"scale": 1.0},
        "parents must be",
    ),
    ("attention", [f32(S, 32), f32(2, 9, 8), f32(2, 9, 8), *WHERE], {"scale": 1.0}, "bad q"),
    ("attention", [f32(S, 4, 8), f32(2, 9, 8), f16(2, 9, 8), *WHERE], {"scale": 1.0}, "match"),
    ("attention", [f32(S, 4, 8), i32(2, 9, 8), i32(2, 9, 8), *WHERE], {"scale": 1.0}, "dtype"),
    ("attention", [f32(S, 3, 8), f32(2, 9, 8), f32(2, 9, 8), *WHERE], {"scale": 1.0}, "divide"),
    ("attention", [f32(S, 4, 4), f32(2, 9, 8), f32(2, 9, 8), *WHERE], {"scale": 1.0}, "head sizes"),
    ("attention", [f32(S, 4, 8), u8(2, 9, 8), u8(2, 9, 8), *WHERE], {"scale": 1.0}, "head sizes"),
    ("attention", [f32(S, S, 8), f32(2, 9, 8), f32(2, 9, 8), *WHERE], {"scale": 1.0}, "be known"),
    (
        "attention",
        [f32(S, 4, 8), f32(2, 9, 8), f32(2, 9, 8), i32(1), i32(S)],
        {"scale": 1.0},
        "sequence must",
    ),
    ("attention", [f32(S, 4, 8), f32(2, 9, 8), f32(2, 9, 8), *WHERE], {}, "scale must be"),
    (
        "attention",
        [f32(S, 4, 8), f32(2, 9, 8), f32(2, 9, 8), *WHERE],
        {"scale": 1.0, "window": -1},
        "window is negative",
    ),
    (
        "attention",
        [f32(S, 4, 8), f32(2, 9, 8), f32(2, 9, 8), *WHERE],
        {"scale": 1.0, "softcap": -1.0},
        "softcap is negative",
    ),
    ("integer", [i32(3), i64(3)], {"kind": "and"}, "both inputs must be i32 or i64"),
    ("integer", [f32(3), f32(3)], {"kind": "and"}, "both inputs must be i32 or i64"),
    ("integer", [i32(3), i32(3)], {"kind": "nand"}, "no function 'nand'"),
    ("state_write", [f32(3), f32(4)], {}, "new value differ"),
    ("cast", [i32(3)], {"dtype": "i64", "checked": 1}, "only i64 to i32"),
    ("scatter", [f32(3), i64(3), f32(3)], {"axis": 0, "kind": "set"}, "need i32 numbers"),
    ("scatter", [f32(3), i32(3), i32(3)], {"axis": 0, "kind": "set"}, "need i32 numbers"),
    ("scatter", [f32(3, 2), i32(3, 4), f32(3, 4)], {"axis": 0, "kind": "set"}, "too many numbers"),
    ("scatter", [f32(3), i32(3), f32(3)], {"axis": 0, "kind": "xor"}, "no kind 'xor'"),
    ("scatter", [u8(3), i32(3), u8(3)], {"axis": 0, "kind": "set"}, "must be f32, i32 or i64"),
    ("expert_linear", [f32(2, 4), f32(48), i32(2, 1)], {"experts": 3}, "experts . out, in"),
    ("expert_linear", [f32(2, 4), f32(48, 4), i32(2, 1)], {"experts": 2}, "a multiple of 16"),
    ("expert_linear", [f32(2, 4), f32(48, 4), f32(2, 1)], {"experts": 3}, "choices must be i32"),
    ("expert_linear", [f32(3, 4), f32(48, 4), i32(2, 1)], {"experts": 3}, "a row for each"),
    ("expert_linear", [f32(2, 5), f32(48, 4), i32(2, 1)], {"experts": 3}, "inner sizes differ"),
    ("argsort", [f32(3)], {"axis": 1}, "no axis 1"),
    ("argsort", [f16(3)], {"axis": 0}, "must be f32, i32 or i64"),
    ("cumulate", [f32(3)], {"axis": 0, "kind": "mean"}, "no kind 'mean'"),
    ("count", [f32(3)], {"axis": 1}, "no axis 1"),
    ("cumulate", [boolean(3)], {"axis": 0, "kind": "sum"}, "must be f32, i32 or i64"),
    ("nonzero", [f32(3)], {"size": "n"}, "must be bool"),
    ("nonzero", [boolean(3, 2)], {"size": "n"}, "must be bool"),
    ("nonzero", [boolean(3)], {"size": "n +1"}, "no plain name"),
    ("nms", [f32(3, 6)], {"threshold": 0.5}, "must be f32"),
    ("nms", [i32(3, 4)], {"threshold": 0.5}, "must be f32"),
    ("reshape_as", [f32(6), f32(2)], {"shape": (-1, 4)}, "another size"),
    ("reshape_as", [f32(6), f32(2)], {"shape": (-2, 3)}, "bad size -2"),
]


@pytest.mark.parametrize(
    ("op", "types", "attrs", "message"), REFUSED, ids=[f"{r[0]}-{r[3]}" for r in REFUSED]
)
def test_wrong_types_are_refused(
    op: str, types: list[TensorType | None], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        infer_types(op, types, attrs)


def test_every_op_refuses_something() -> None:
    assert {rule[0] for rule in REFUSED} == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_too_many_inputs_and_unknown_attributes_are_refused(op: str) -> None:
    _, most = find_op(op).arity
    with pytest.raises(GraphError, match="inputs, not"):
        infer_types(op, [f32(1)] * (most + 1), {})
    with pytest.raises(GraphError, match="no attribute 'colour'"):
        infer_types(op, [f32(1)] * most, {"colour": 1})


def test_an_unknown_op_gets_a_suggestion() -> None:
    with pytest.raises(GraphError, match="Did you mean 'softmax'"):
        find_op("softmaks")


@pytest.mark.parametrize(
    ("op", "types", "attrs", "result"),
    [
        ("add", [f32(S, 4), f32(4)], {}, f32(S, 4)),
        ("mul", [f32(S, 1), f32(1, S)], {}, f32(S, S)),
        ("mul", [f32(S), f32()], {}, f32(S)),
        ("reshape", [f32(S, 6)], {"shape": (0, 2, 3)}, f32(S, 2, 3)),
        ("reshape", [f32(2, S, 3)], {"shape": (6, 0)}, f32(6, S)),
        ("transpose", [f32(S, T, 3)], {"perm": (2, 0, 1)}, f32(3, S, T)),
        ("slice", [f32(S, 6)], {"axis": 1, "start": 1, "stop": 3}, f32(S, 2)),
        ("concat", [f32(S, 2), f32(S, 3)], {"axis": 1}, f32(S, 5)),
        ("take_rows", [f32(S, 4), i32(T)], {}, f32(T, 4)),
        ("reduce_sum", [f32(S, 4)], {"axes": (0,)}, f32(4)),
        ("reduce_sum", [f32(S, 4)], {"axes": (1,), "keepdims": 1}, f32(S, 1)),
        ("linear", [f32(2, S, 4), f32(3, 4)], {}, f32(2, S, 3)),
        ("conv2d", [f32(S, 8, 8, 2), f32(5, 18)], {"kernel": (3, 3)}, f32(S, 6, 6, 5)),
        ("max_pool2d", [f32(S, 8, 8, 2)], {"kernel": (2, 2), "stride": (2, 2)}, f32(S, 4, 4, 2)),
        ("embedding", [i32(S), f32(9, 4)], {}, f32(S, 4)),
        ("matmul", [f32(S, 4), f32(2, 4, T)], {}, f32(2, S, T)),
        ("rope_table", [i32(S), f32(4)], {}, f32(S, 8)),
        ("cast", [f32(S)], {"dtype": "f16"}, f16(S)),
        ("compare", [f32(S, 1), f32(4)], {"kind": "lt"}, boolean(S, 4)),
        ("where", [boolean(S, 1), f32(4), f32()], {}, f32(S, 4)),
        ("expand", [f32(1, 1, 4), f32(S, 9)], {"shape": (-1, 2, 4)}, f32(S, 2, 4)),
        ("take", [f32(S, 4), i32(T)], {"axis": 1}, f32(S, T)),
        ("gather", [f32(S, 4), i32(S, 2)], {"axis": 1}, f32(S, 2)),
        ("pad", [f32(S, 4)], {"before": (0, 1), "after": (0, 2)}, f32(S, 7)),
        ("argmax", [f32(S, 4)], {"axis": 1}, i32(S)),
    ],
)
def test_symbols_go_through(
    op: str, types: list[TensorType | None], attrs: dict[str, Any], result: TensorType
) -> None:
    assert infer_types(op, types, attrs) == [result]
