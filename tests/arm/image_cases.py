"""Cases of integer layers, depthwise convolutions and Winograd's, against the ops' references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from arm.check_cases import ENCODINGS, CheckCase
from kernels.kernel_cases import EXACT, Array, linear_tolerance
from satchel.encodings import packing
from satchel.graph.ops import find_op
from satchel.graph.ops.activation import ACTIVATIONS

NAMES = list(ACTIVATIONS)
OUT = {"out_scale": 0.7, "out_zero": 31}
# outputs, columns
INTEGER_SHAPES = ((16, 4), (33, 20), (50, 64), (70, 37))
# (height, width, channels), (kernel_h, kernel_w), stride, dilation, padding
WINDOWS = (
    ((6, 9, 16), (3, 3), 1, 1, 1),
    ((7, 17, 37), (5, 5), 2, 1, 2),
    ((5, 40, 20), (3, 3), 1, 1, 0),
    ((9, 9, 5), (3, 2), 1, 2, 1),
    ((8, 11, 18), (2, 2), 3, 1, 0),
    ((12, 15, 32), (5, 5), 1, 1, 2),
)


def image_cases(rng: np.random.Generator) -> Iterator[CheckCase]:
    """Every kernel that only images need."""
    yield from integer_linear(rng)
    yield from depthwise_codes(rng)
    yield from depthwise_floats(rng)
    yield from winograd(rng)
    yield from codes_alone(rng)


def _reference(op: str, arrays: list[Any], attrs: dict[str, Any]) -> Array:
    return find_op(op).reference(arrays, attrs)[0]


def _integers(rng: np.random.Generator, outputs: int, cols: int) -> tuple[Array, Array, Array]:
    weight = rng.integers(-127, 128, (outputs, cols)).astype(np.int8)
    scale = rng.uniform(1e-3, 2e-3, outputs).astype(np.float32)
    return weight, scale, rng.standard_normal(outputs, dtype=np.float32)


def _layer_numbers(attrs: dict[str, Any], outputs: int, cols: int) -> dict[str, float]:
    out_scale = np.float32(attrs.get("out_scale", 0.0))
    return {
        "outputs": outputs,
        "cols": cols,
        "x_zero": attrs["x_zero"],
        "activation": NAMES.index(attrs.get("activation", "none")),
        "residual_scale": attrs.get("residual_scale", 0.0),
        "residual_zero": attrs.get("residual_zero", 0),
        "inverse": float(np.float32(1) / out_scale) if out_scale else 0.0,
        "out_zero": attrs.get("out_zero", 0),
    }


def _packed(weight: Array) -> dict[str, Array]:
    codes, sums = packing.pack_matrix("i8", weight.astype(np.float32))
    return {"codes": codes.view(np.uint8).reshape(-1), "sums": sums.view(np.uint8).reshape(-1)}


def integer_linear(rng: np.random.Generator) -> Iterator[CheckCase]:
    for outputs, cols in INTEGER_SHAPES:
        for m, activation, out, with_residual in (
            (1, "none", OUT, False),
            (3, "relu", OUT, True),
            (17, "hardswish", OUT, False),
            (31, "relu6", OUT, True),
            (5, "relu", {}, False),
        ):
            weight, scale, bias = _integers(rng, outputs, cols)
            x = rng.integers(0, 256, (m, cols)).astype(np.uint8)
            residual = (
                rng.integers(0, 256, (m, outputs)).astype(np.uint8) if with_residual else None
            )
            attrs = {"x_zero": 117, "activation": activation, **out}
            inputs = {"x": np.pad(x, ((0, 0), (0, -cols % 4))).reshape(-1), "scale": scale}
            inputs |= {"bias": bias, **_packed(weight)}
            if residual is not None:
                attrs |= {"residual_scale": 0.3, "residual_zero": 140}
                inputs["residual"] = residual.reshape(-1)
            expected = _reference("qlinear", [x, weight, scale, bias, residual], attrs)
            numbers = _layer_numbers(attrs, outputs, cols)
            name = f"linear-i8-{outputs}x{cols}-rows{m}-{activation}-{'codes' if out else 'floats'}"
            yield CheckCase("linear_i8", name, EXACT, inputs, {"y": expected}, numbers)


def _window_numbers(
    shape: Any, kernel: Any, stride: int, dilation: int, pad: int
) -> dict[str, Any]:
    return {
        "height": shape[0],
        "width": shape[1],
        "kernel_h": kernel[0],
        "kernel_w": kernel[1],
        "stride": stride,
        "dilation": dilation,
        "padding": pad,
    }


def _window_name(kind: str, shape: Any, kernel: Any, stride: int, dilation: int) -> str:
    size = "x".join(map(str, (*shape, *kernel)))
    return f"depthwise-{kind}-{size}-stride{stride}-dilation{dilation}"


def depthwise_codes(rng: np.random.Generator) -> Iterator[CheckCase]:
    for shape, kernel, stride, dilation, padding in WINDOWS:
        channels, taps = shape[2], kernel[0] * kernel[1]
        weight, scale, bias = _integers(rng, channels, taps)
        x = rng.integers(0, 256, (1, *shape)).astype(np.uint8)
        attrs: dict[str, Any] = {"x_zero": 9, "activation": "hardswish", **OUT, "groups": channels}
        attrs |= {"kernel": kernel, "stride": (stride,) * 2, "dilation": (dilation,) * 2}
        attrs["padding"] = (padding,) * 4
        expected = _reference("qconv2d", [x, weight, scale, bias], attrs)
        numbers = _layer_numbers(attrs, channels, taps)
        numbers |= _window_numbers(shape, kernel, stride, dilation, padding)
        inputs = {"x": x.reshape(-1), "scale": scale, "bias": bias, **_packed(weight)}
        name = _window_name("i8", shape, kernel, stride, dilation)
        yield CheckCase("depthwise_i8", name, EXACT, inputs, {"y": expected}, numbers)


def _convolution(x: Array, weight: Array, bias: Array, **options: Any) -> Array:
    """Torch's, in float64, of one image [H, W, C] with kernels [outputs, channels, kh, kw]."""
    image, kernel, offset = (torch.from_numpy(a.astype(np.float64)) for a in (x, weight, bias))
    result = functional.conv2d(image.permute(2, 0, 1)[None], kernel, offset, **options)
    return np.ascontiguousarray(result[0].permute(1, 2, 0).numpy())


def depthwise_floats(rng: np.random.Generator) -> Iterator[CheckCase]:
    for encoding in ("f32", "f16"):
        for shape, kernel, stride, dilation, padding in WINDOWS:
            channels, taps = shape[2], kernel[0] * kernel[1]
            weight = rng.standard_normal((channels, taps), dtype=np.float32)
            weight = weight.astype(np.float16).astype(np.float32)
            x = rng.standard_normal(shape, dtype=np.float32)
            bias = rng.standard_normal(channels, dtype=np.float32)
            expected = _convolution(
                x,
                weight.reshape(channels, 1, *kernel),
                bias,
                stride=stride,
                padding=padding,
                dilation=dilation,
                groups=channels,
            )
            codes, _ = packing.pack_matrix(encoding, weight)
            numbers = {"encoding": ENCODINGS[encoding], "outputs": channels, "activation": 1}
            numbers |= _window_numbers(shape, kernel, stride, dilation, padding)
            inputs = {"x": x, "codes": codes.view(np.uint8).reshape(-1), "bias": bias}
            name = _window_name(encoding, shape, kernel, stride, dilation)
            outputs = {"y": np.maximum(expected, 0)}
            tolerance = linear_tolerance(expected)
            yield CheckCase("depthwise", name, tolerance, inputs, outputs, numbers)


def winograd(rng: np.random.Generator) -> Iterator[CheckCase]:
    for height, width, channels, outputs in ((6, 8, 32, 32), (7, 9, 33, 37), (5, 4, 8, 50)):
        weight = rng.standard_normal((outputs, 3, 3, channels), dtype=np.float32)
        x = rng.standard_normal((height, width, channels), dtype=np.float32)
        bias = rng.standard_normal(outputs, dtype=np.float32)
        residual = rng.standard_normal((height, width, outputs), dtype=np.float32)
        sums = _convolution(x, weight.transpose(0, 3, 1, 2), bias, padding=1) + residual
        codes, _ = packing.pack_matrix("f32", weight.reshape(outputs, -1))
        numbers = {"height": height, "width": width, "channels": channels, "outputs": outputs}
        numbers["activation"] = NAMES.index("relu")
        inputs = {"x": x, "codes": codes.view(np.uint8).reshape(-1), "bias": bias}
        inputs["residual"] = residual
        name, expected = f"winograd-{height}x{width}x{channels}-to{outputs}", np.maximum(sums, 0)
        yield CheckCase("winograd", name, linear_tolerance(sums), inputs, {"y": expected}, numbers)


def codes_alone(rng: np.random.Generator) -> Iterator[CheckCase]:
    steps = {"a_scale": 0.03, "a_zero": 100, "b_scale": 0.02, "b_zero": 7}
    out = {"out_scale": 0.05, "out_zero": 90}
    for size in (1, 16, 37, 130):
        x = (4 * rng.standard_normal(size)).astype(np.float32)
        x[0], x[-1] = (np.nan, np.inf) if size > 1 else (0.1, 0.1)
        expected = _reference("quantize", [x], {"scale": 0.05, "zero": 90})
        name = f"quantize-codes-{size}"
        yield CheckCase("quantize_codes", name, EXACT, {"x": x}, {"y": expected}, dict(out))
        a, b = (rng.integers(0, 256, size).astype(np.uint8) for _ in range(2))
        for op, reference in (("add_codes", "qadd"), ("mul_codes", "qmul")):
            made = _reference(reference, [a, b], {**steps, **out, "activation": "relu"})
            numbers = {**steps, **out, "activation": NAMES.index("relu")}
            pair = {"a": a, "b": b}
            yield CheckCase(op, f"{op}-{size}", EXACT, pair, {"y": made}, numbers)
