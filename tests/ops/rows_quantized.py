"""Rows of the op table: layers in integers, against torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.rows_conv import CONVOLUTIONS, activate, conv2d
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import DType, Sym
from satchel.graph.ops.activation import ACTIVATIONS
from support.arrays import integers, normal, uniform
from support.op_case import Input, OpCase, Stored, case

S = Sym("S", 40)
I8, F32 = Encoding("matrix_i8"), Encoding("f32")
OUT = {"x_zero": 121, "out_scale": 0.7, "out_zero": 97}


# With 64 channels a kernel's row is whole steps of AMX too, which reads windows in the image: rows
# of two tiles of pixels, of one, a weight that threads share out, and windows without padding.
WINDOWS: dict[str, tuple[tuple[int, int, int], int, dict[str, Any]]] = {
    "windows": ((5, 18, 64), 70, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "windows_stride": (
        (9, 27, 64),
        50,
        {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)},
    ),
    "windows_few": ((7, 7, 64), 140, {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    "windows_point": ((7, 15, 84), 130, {"kernel": (1, 1), "stride": (2, 2)}),
}


def codes(*shape: int, seed: object = 0) -> np.ndarray:
    return integers(*shape, below=256, seed=seed).astype(np.uint8)


def weights(outputs: int, cols: int) -> Stored:
    return Stored(integers(outputs, cols, below=255, seed="w") - 127, I8)


def steps(outputs: int, cols: int) -> list[Stored]:
    """Scales that bring the result to some tens of steps, and biases."""
    usual = 30 / (5400 * np.sqrt(cols))
    scale = uniform(outputs, low=0.5 * usual, high=usual, seed="s")
    return [Stored(scale, F32), Stored(normal(outputs, seed="b", scale=9.0), F32)]


def _finish(t: Any, sums: Any, scale: Any, bias: Any, residual: Any, attrs: dict[str, Any]) -> Any:
    """In 32-bit floats, step by step: what counts is how each is rounded."""
    activation = attrs.get("activation", "none")
    if "out_scale" in attrs and activation in ("none", "relu", "relu6"):
        return _finish_in_steps(t, sums, scale, bias, residual, attrs)
    total = sums.float() * scale.float()
    if bias is not None:
        total = total + bias.float()
    if residual is not None:
        centred = residual.float() - attrs.get("residual_zero", 0)
        total = total + centred * np.float32(attrs["residual_scale"])
    total = activate(t, activation, total.double()).float()
    if "out_scale" not in attrs:
        return total
    inverse = float(np.float32(1) / np.float32(attrs["out_scale"]))
    rounded = (total * inverse).round() + attrs.get("out_zero", 0)
    return rounded.clamp(0, 255).to(t.uint8)


def _finish_in_steps(
    t: Any, sums: Any, scale: Any, bias: Any, residual: Any, attrs: dict[str, Any]
) -> Any:
    """Multiply-adds that are rounded once: in float64, where their products are exact."""
    inverse = np.float32(1) / np.float32(attrs["out_scale"])
    start = t.zeros(len(scale)) if bias is None else bias.float() * float(inverse)
    step = np.float32(attrs.get("residual_scale", 0)) * inverse
    if residual is not None:
        start = start - float(np.float32(attrs.get("residual_zero", 0)) * step)
    factors = (scale.float() * float(inverse)).double()
    total = (sums.float().double() * factors + start.double()).float()
    if residual is not None:
        total = (residual.double() * float(step) + total.double()).float()
    if attrs.get("activation", "none") != "none":
        total = total.clamp(min=0)
    if attrs.get("activation") == "relu6":
        total = total.clamp(max=float(np.float32(6) * inverse))
    return (total.round() + attrs.get("out_zero", 0)).clamp(0, 255).to(t.uint8)


def _conv_oracle(attrs: dict[str, Any]) -> Any:
    def layer(
        t: Any, x: Any, weight: Any, scale: Any, bias: Any = None, residual: Any = None
    ) -> Any:
        centred = x.double() - attrs.get("x_zero", 0)
        sums = conv2d(t, centred, weight.double(), None, attrs)
        return _finish(t, sums, scale, bias, residual, attrs)

    return layer


def _linear_oracle(attrs: dict[str, Any]) -> Any:
    def layer(
        t: Any, x: Any, weight: Any, scale: Any, bias: Any = None, residual: Any = None
    ) -> Any:
        sums = (x.double() - attrs.get("x_zero", 0)) @ weight.double().T
        return _finish(t, sums, scale, bias, residual, attrs)

    return layer


def _conv_rows() -> list[OpCase]:
    rows = []
    for name, (image, outputs, window) in (CONVOLUTIONS | WINDOWS).items():
        cols = int(np.prod(window["kernel"])) * image[2] // window.get("groups", 1)
        inputs = [codes(2, *image), weights(outputs, cols), *steps(outputs, cols)]
        for kind, more in (("u8", OUT), ("f32", {"x_zero": 3})):
            attrs = window | more
            oracle = _conv_oracle(attrs)
            rows.append(case("qconv2d", f"{name}_{kind}", inputs, oracle, tolerance=0, **attrs))
    same_size = (
        "plain",
        "plain_wide",
        "three",
        "grouped",
        "depthwise",
        "depthwise_long",
        "windows",
        "windows_few",
    )
    for name in same_size:
        image, outputs, window = (CONVOLUTIONS | WINDOWS)[name]
        cols = int(np.prod(window["kernel"])) * image[2] // window.get("groups", 1)
        attrs = window | OUT | {"residual_scale": 0.3, "residual_zero": 140, "activation": "relu"}
        residual = codes(1, *image[:2], outputs, seed="r")
        inputs = [codes(1, *image), weights(outputs, cols), *steps(outputs, cols), residual]
        oracle = _conv_oracle(attrs)
        rows.append(case("qconv2d", f"{name}_residual", inputs, oracle, tolerance=0, **attrs))
    return rows


def _linear_rows() -> list[OpCase]:
    rows = []
    for shape, outputs in (((1,), 1), ((7,), 5), ((1, 64), 32), ((3, 130), 17), ((2, 15, 36), 40)):
        inputs = [codes(*shape), weights(outputs, shape[-1]), *steps(outputs, shape[-1])]
        for kind, attrs in (("u8", OUT), ("f32", {"x_zero": 200}), ("plain", {"out_scale": 1.0})):
            name = "x".join(map(str, (*shape, outputs))) + f"_{kind}"
            oracle = _linear_oracle(attrs)
            rows.append(case("qlinear", name, inputs, oracle, tolerance=0, **attrs))
    # The exponentials of a few activations may differ in their last bit, which can be one step.
    for name in ACTIVATIONS:
        for kind, out in (("u8", OUT), ("f32", {"x_zero": 121})):
            attrs = out | {"activation": name}
            inputs = [codes(6, 64), weights(49, 64), *steps(49, 64)]
            inexact = (
                0.0 if name in ("none", "relu", "relu6") else 1 / 255 if kind == "u8" else 1e-5
            )
            oracle = _linear_oracle(attrs)
            rows.append(
                case("qlinear", f"{name}_{kind}", inputs, oracle, tolerance=inexact, **attrs)
            )
    attrs = OUT | {"residual_scale": 0.2, "residual_zero": 12}
    inputs = [codes(5, 20), weights(18, 20), steps(18, 20)[0], None, codes(5, 18, seed="r")]

    def without_bias(t: Any, x: Any, w: Any, scale: Any, residual: Any) -> Any:
        return _linear_oracle(attrs)(t, x, w, scale, None, residual)

    rows.append(case("qlinear", "residual", inputs, without_bias, tolerance=0, **attrs))
    # The largest sums there can be, and scales that send results past both ends.
    edge = np.array([0, 255] * 2000, np.uint8)[None]
    extreme = Stored(np.array([[127] * 4000, [-127] * 4000]), I8)
    large = Stored(np.array([3e3, 1e-9], np.float32), F32)
    oracle = _linear_oracle(OUT)
    rows.append(case("qlinear", "extremes", [edge, extreme, large], oracle, tolerance=0, **OUT))
    calls = [[codes(n, 24)] for n in (1, 40, 17)]
    slots = [Input((S, 24), DType.u8), weights(20, 24), *steps(20, 24)]
    rows.append(case("qlinear", "symbolic", slots, oracle, calls=calls, tolerance=0, **OUT))
    return rows


ROWS = [*_conv_rows(), *_linear_rows()]
