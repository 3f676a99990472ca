"""Rows of the op table: convolutions and pooling, channels-last, against torch's channels-first."""

from __future__ import annotations

from typing import Any

import numpy as np

from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Sym
from satchel.graph.ops.activation import ACTIVATIONS
from support.arrays import integers, normal
from support.op_case import Input, OpCase, Stored, case

B = Sym("B", 3)
F32 = Encoding("f32")
FLOATS = (Encoding("matrix_f32"), Encoding("matrix_f16"))


def activate(t: Any, name: str, x: Any) -> Any:
    functions = t.nn.functional
    if name == "none":
        return x
    if name == "gelu_tanh":
        return functions.gelu(x, approximate="tanh")
    return getattr(functions, name)(x)


def conv2d(t: Any, x: Any, weight: Any, bias: Any, attrs: dict[str, Any], fill: float = 0.0) -> Any:
    """Torch's convolution of [N, H, W, C] with a weight [out, kh * kw * in], before activation."""
    (kh, kw), groups = attrs["kernel"], attrs.get("groups", 1)
    top, bottom, left, right = attrs.get("padding", (0, 0, 0, 0))
    image = t.nn.functional.pad(x.movedim(3, 1), (left, right, top, bottom), value=fill)
    kernel = weight.reshape(len(weight), kh, kw, -1).movedim(3, 1)
    options = {"stride": attrs.get("stride", (1, 1)), "dilation": attrs.get("dilation", (1, 1))}
    return t.nn.functional.conv2d(image, kernel, bias, groups=groups, **options).movedim(1, 3)


def conv_transpose2d(t: Any, x: Any, weight: Any, bias: Any, attrs: dict[str, Any]) -> Any:
    (kh, kw), groups = attrs["kernel"], attrs.get("groups", 1)
    top, bottom, left, right = attrs.get("padding", (0, 0, 0, 0))
    outputs = len(weight) // groups
    split = weight.reshape(groups, outputs, kh, kw, -1)  # torch wants [in, out / groups, kh, kw]
    kernel = split.permute(0, 4, 1, 2, 3).reshape(-1, outputs, kh, kw)
    options = {"stride": attrs.get("stride", (1, 1)), "dilation": attrs.get("dilation", (1, 1))}
    out = t.nn.functional.conv_transpose2d(x.movedim(3, 1), kernel, groups=groups, **options)
    out = t.nn.functional.pad(out, (-left, -right, -top, -bottom)).movedim(1, 3)
    return out if bias is None else out + bias


# (image [H, W, C], outputs, attributes)
CONVOLUTIONS: dict[str, tuple[tuple[int, int, int], int, dict[str, Any]]] = {
    "point": ((1, 1, 1), 1, {"kernel": (1, 1)}),
    "plain": ((5, 6, 7), 20, {"kernel": (1, 1)}),
    "plain_wide": ((17, 16, 33), 50, {"kernel": (1, 1)}),
    "plain_stride": ((9, 8, 5), 18, {"kernel": (1, 1), "stride": (2, 3)}),
    "three": ((7, 9, 3), 16, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "stem": ((19, 23, 3), 34, {"kernel": (7, 7), "stride": (2, 2), "padding": (3, 3, 3, 3)}),
    "deep": ((6, 7, 130), 33, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "few_pixels": ((3, 4, 48), 400, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "long_rows": ((9, 15, 8), 34, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "long_rows_stride": (
        (12, 31, 4),
        17,
        {"kernel": (3, 4), "stride": (2, 2), "dilation": (2, 1), "padding": (0, 1, 2, 3)},
    ),
    "long_rows_plain": ((6, 30, 12), 18, {"kernel": (1, 1), "stride": (2, 2)}),
    "uneven": ((6, 9, 5), 7, {"kernel": (2, 4), "stride": (1, 2), "padding": (0, 1, 2, 3)}),
    "dilated": ((11, 12, 4), 6, {"kernel": (3, 2), "dilation": (2, 3), "padding": (2, 2, 1, 0)}),
    "grouped": ((6, 5, 6), 9, {"kernel": (3, 3), "groups": 3, "padding": (1, 1, 1, 1)}),
    "grouped_tiles": ((6, 5, 8), 64, {"kernel": (3, 3), "groups": 2, "stride": (2, 1)}),
    "grouped_large": ((5, 5, 40), 50, {"kernel": (1, 1), "groups": 5}),
    "depthwise": ((9, 11, 24), 24, {"kernel": (3, 3), "groups": 24, "padding": (1, 1, 1, 1)}),
    "depthwise_one": ((9, 11, 1), 1, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "depthwise_stride": (
        (12, 13, 37),
        37,
        {"kernel": (5, 5), "groups": 37, "stride": (2, 2), "padding": (2, 2, 1, 3)},
    ),
    "depthwise_dilated": (
        (12, 13, 16),
        16,
        {"kernel": (3, 2), "groups": 16, "dilation": (2, 3), "padding": (3, 1, 0, 4)},
    ),
    "depthwise_long": (
        (4, 75, 34),
        34,
        {"kernel": (3, 3), "groups": 34, "padding": (1, 1, 1, 1)},
    ),
    "depthwise_apart": ((9, 30, 17), 17, {"kernel": (2, 2), "groups": 17, "stride": (3, 5)}),
    "depthwise_large": (
        (14, 90, 16),
        16,
        {"kernel": (11, 9), "groups": 16, "stride": (1, 2), "padding": (5, 5, 4, 4)},
    ),
    "depthwise_whole": ((7, 7, 40), 40, {"kernel": (7, 7), "groups": 40}),
    "depthwise_twice": ((6, 7, 5), 10, {"kernel": (3, 3), "groups": 5}),
    "line": ((1, 30, 8), 12, {"kernel": (1, 5), "stride": (1, 2), "padding": (0, 0, 2, 2)}),
    "line_depthwise": (
        (1, 30, 20),
        20,
        {"kernel": (1, 31), "groups": 20, "padding": (0, 0, 15, 15)},
    ),
    # Large enough for Winograd's tiles of 4 x 4 pixels, with odd sizes and uneven padding: in one
    # block of tiles, or in several, for which the transformed weights are kept or made again;
    # with more channels than are transformed at a time.
    "tiles": ((13, 15, 33), 35, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "tiles_unpadded": ((12, 17, 32), 48, {"kernel": (3, 3)}),
    "tiles_uneven": ((9, 18, 40), 90, {"kernel": (3, 3), "padding": (2, 0, 1, 2)}),
    "tiles_blocks": ((30, 61, 32), 50, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "tiles_deep": ((13, 14, 259), 40, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "tiles_wide": ((23, 50, 176), 170, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "mostly_padding": ((2, 2, 3), 5, {"kernel": (5, 5), "padding": (4, 4, 4, 4)}),
}

SPREADS: dict[str, tuple[tuple[int, int, int], int, dict[str, Any]]] = {
    "point": ((3, 4, 5), 6, {"kernel": (1, 1)}),
    "double": ((4, 5, 7), 20, {"kernel": (2, 2), "stride": (2, 2)}),
    "overlap": ((5, 4, 6), 5, {"kernel": (4, 3), "stride": (2, 1), "padding": (1, 1, 1, 1)}),
    "output_padding": ((4, 4, 3), 4, {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 0, 1, 0)}),
    "negative": ((3, 3, 3), 4, {"kernel": (2, 2), "stride": (3, 3), "padding": (0, -1, 1, -2)}),
    "dilated": ((4, 5, 4), 6, {"kernel": (2, 3), "dilation": (3, 2), "groups": 2}),
    "depthwise": ((4, 4, 18), 18, {"kernel": (3, 3), "stride": (2, 2), "groups": 18}),
}


def _layer_rows() -> list[OpCase]:
    rows = []
    for op, oracle, table in (
        ("conv2d", conv2d, CONVOLUTIONS),
        ("conv_transpose2d", conv_transpose2d, SPREADS),
    ):
        for name, (image, outputs, attrs) in table.items():
            cols = int(np.prod(attrs["kernel"])) * image[2] // attrs.get("groups", 1)
            for encoding in FLOATS:
                weight = Stored(normal(outputs, cols, seed="w"), encoding)
                bias = Stored(normal(outputs, seed="b"), F32)
                inputs = [normal(2, *image), weight, bias]

                def layer(t: Any, *tensors: Any, a: Any = attrs, f: Any = oracle) -> Any:
                    return f(t, *tensors, a)

                rows.append(case(op, f"{name}_{encoding.layout}", inputs, layer, **attrs))
        image, outputs, attrs = (5, 6, 9), 21, {"kernel": (2, 2)}
        weight = Stored(normal(outputs, 36, seed="w"), FLOATS[0])
        slots = [Input((B, *image)), weight]
        calls = [[normal(n, *image)] for n in (1, 3, 2)]

        def batch(t: Any, x: Any, weight: Any, a: Any = attrs, f: Any = oracle) -> Any:
            return f(t, x, weight, None, a)

        rows.append(case(op, "symbolic", slots, batch, calls=calls, **attrs))
    return rows


def _residual_rows() -> list[OpCase]:
    rows = []
    for name in ("plain", "plain_wide", "three", "deep", "tiles"):
        image, outputs, attrs = CONVOLUTIONS[name]
        cols = int(np.prod(attrs["kernel"])) * image[2]
        for encoding in FLOATS:
            weight = Stored(normal(outputs, cols, seed="w"), encoding)
            residual = normal(2, *image[:2], outputs, seed="r")
            bias = Stored(normal(outputs, seed="b"), F32)

            def layer(t: Any, x: Any, w: Any, b: Any, r: Any, a: Any = attrs) -> Any:
                return t.relu(conv2d(t, x, w, b, a) + r)

            inputs = [normal(2, *image), weight, bias, residual]
            kind = f"{name}_residual_{encoding.layout}"
            rows.append(case("conv2d", kind, inputs, layer, activation="relu", **attrs))
    return rows


def _activation_rows() -> list[OpCase]:
    rows = []
    for name in ACTIVATIONS:
        attrs = {"kernel": (3, 3), "activation": name}
        for kind, groups in (("conv", 1), ("depthwise", 6)):
            weight = Stored(normal(6, 9 * 6 // groups, seed="w", scale=1.0), FLOATS[0])

            def layer(t: Any, x: Any, w: Any, n: str = name, g: int = groups) -> Any:
                return activate(t, n, conv2d(t, x, w, None, {"kernel": (3, 3), "groups": g}))

            inputs = [normal(1, 8, 9, 6), weight]
            rows.append(case("conv2d", f"{kind}_{name}", inputs, layer, groups=groups, **attrs))

        def spread(t: Any, x: Any, w: Any, n: str = name) -> Any:
            return activate(t, n, conv_transpose2d(t, x, w, None, {"kernel": (3, 3)}))

        weight = Stored(normal(6, 54, seed="w", scale=0.3), FLOATS[0])
        rows.append(case("conv_transpose2d", name, [normal(1, 4, 5, 6), weight], spread, **attrs))
    return rows


POOLS: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "two": ((6, 8, 5), {"kernel": (2, 2), "stride": (2, 2)}),
    "stem": ((11, 12, 17), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}),
    "ceil": ((6, 8, 4), {"kernel": (3, 3), "stride": (2, 3), "ceil_mode": 1}),
    "ceil_padded": (
        (5, 6, 4),
        {"kernel": (3, 2), "stride": (2, 3), "padding": (1, 1, 1, 1), "ceil_mode": 1},
    ),
    "overlap": ((5, 5, 3), {"kernel": (4, 3), "stride": (1, 1), "padding": (2, 2, 1, 1)}),
    "whole": ((7, 7, 40), {"kernel": (7, 7)}),
    "line": ((1, 20, 6), {"kernel": (1, 3), "stride": (1, 2), "padding": (0, 0, 1, 1)}),
}


def _options(attrs: dict[str, Any]) -> dict[str, Any]:
    padding = attrs.get("padding", (0, 0, 0, 0))
    return {
        "stride": attrs.get("stride", (1, 1)),
        "padding": (padding[0], padding[2]),
        "ceil_mode": bool(attrs.get("ceil_mode", 0)),
    }


def _largest_codes(t: Any, x: Any) -> Any:
    pooled = t.nn.functional.max_pool2d(x.float().movedim(3, 1), 2, 1, dilation=(2, 3))
    return pooled.movedim(1, 3).to(t.uint8)


def _pool_rows() -> list[OpCase]:
    rows = []
    for name, (image, attrs) in POOLS.items():

        def largest(t: Any, x: Any, a: Any = attrs) -> Any:
            pool = t.nn.functional.max_pool2d
            return pool(x.movedim(3, 1), a["kernel"], **_options(a)).movedim(1, 3)

        rows.append(case("max_pool2d", name, [normal(2, *image)], largest, tolerance=0, **attrs))
        for counted, divisor in ((1, 0), (0, 0), (1, 5)):

            def mean(t: Any, x: Any, a: Any = attrs, c: int = counted, d: int = divisor) -> Any:
                pool = t.nn.functional.avg_pool2d
                options = {"count_include_pad": bool(c), "divisor_override": d or None}
                out = pool(x.movedim(3, 1), a["kernel"], **_options(a), **options)
                return out.movedim(1, 3)

            options = {"count_include_pad": counted, "divisor": divisor}
            variant = f"{name}_counted{counted}_divisor{divisor}"
            inputs = [normal(2, *image)]
            rows.append(case("avg_pool2d", variant, inputs, mean, **attrs, **options))

    def dilated(t: Any, x: Any) -> Any:
        return t.nn.functional.max_pool2d(x.movedim(3, 1), 2, 1, dilation=(2, 3)).movedim(1, 3)

    attrs = {"kernel": (2, 2), "dilation": (2, 3)}
    codes = integers(1, 7, 8, 3, below=256).astype(np.uint8)
    rows.append(case("max_pool2d", "u8", [codes], _largest_codes, tolerance=0, **attrs))
    rows.append(case("max_pool2d", "dilated", [normal(1, 7, 8, 3)], dilated, tolerance=0, **attrs))
    return rows


ROWS = [*_layer_rows(), *_residual_rows(), *_activation_rows(), *_pool_rows()]
