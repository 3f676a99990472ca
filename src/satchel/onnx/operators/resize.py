"""Resize: along each axis a choice of entries, or a matrix of their shares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Value
from satchel.onnx.operators.registry import Call, known_array, numbers_of, onnx_operator
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operator_error import OperatorError
from satchel.torch.operators.pool import mix_axis


def _centres(mode: str, size: int, wanted: int, scale: float) -> NDArray[np.float64]:
    """Where in the source each pixel of the result is."""
    x = np.arange(wanted, dtype=np.float64)
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return x * (size - 1) / (wanted - 1) if wanted > 1 else np.zeros(1)
    if mode == "pytorch_half_pixel" and wanted == 1:
        return np.zeros(1)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        adjustment = wanted / (scale * size)
        return size / 2 * (1 - adjustment) + (x + 0.5) / scale - 0.5
    raise OperatorError(f"Resize with coordinates by {mode}")


def _nearest(mode: str, centres: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    if mode == "floor":
        places = np.floor(centres)
    elif mode == "ceil":
        places = np.ceil(centres)
    elif mode == "round_prefer_ceil":
        places = np.floor(centres + 0.5)
    else:
        places = np.ceil(centres - 0.5)
    return np.clip(places, 0, size - 1).astype(np.int64)


def _shares(
    centres: NDArray[np.float64], size: int, cubic: bool, a: float, exclude: bool
) -> NDArray[np.float32]:
    matrix = np.zeros((len(centres), size))
    for row, centre in enumerate(centres):
        reach = 2 if cubic else 1
        first = math.floor(centre) - reach + 1
        for place in range(first, first + 2 * reach):
            d = abs(centre - place)
            if not cubic:
                share = max(0.0, 1 - d)
            elif d <= 1:
                share = ((a + 2) * d - (a + 3)) * d * d + 1
            else:
                share = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0
            if exclude and not 0 <= place < size:
                continue
            matrix[row, min(max(place, 0), size - 1)] += share
        if exclude:
            matrix[row] /= matrix[row].sum()
    return matrix.astype(np.float32)


@onnx_operator("Resize", "Upsample")
def resize(low: Lowering, call: Call, x: Value, *given: Value | None) -> Value:
    rank = len(x.shape)
    if call.name == "Upsample" or call.version < 11:
        scales = call.get("scales")
        if scales is None:
            scales = known_array(given[0], "scales").tolist()
        sizes, transform, rounding = None, "asymmetric", "floor"
    else:
        _, factors, wanted = (*given, None, None, None)[:3]
        scales = known_array(factors, "scales").tolist() if factors is not None else None
        sizes = numbers_of(wanted, "sizes") if wanted is not None else None
        transform = call.get("coordinate_transformation_mode", "half_pixel")
        rounding = call.get("nearest_mode", "round_prefer_floor")
    if call.get("antialias", 0):
        raise OperatorError("Resize with antialias")
    axes = [axis_of(a, rank) for a in call.get("axes") or range(rank)]
    mode = call.get("mode", "nearest")
    have = [low.known(x.shape[a], "Resize") for a in axes]
    if sizes is not None:
        ratios = [w / h for w, h in zip(sizes, have, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(ratios) if policy == "not_larger" else max(ratios)
            ratios, sizes = [one] * len(axes), [math.floor(one * h + 0.5) for h in have]
    else:
        if scales is None:
            raise OperatorError("Resize without sizes")
        ratios, sizes = scales, [math.floor(h * s) for h, s in zip(have, scales, strict=True)]
    for axis, size, want, ratio in zip(axes, have, sizes, ratios, strict=True):
        centres = _centres(transform, size, want, float(ratio))
        if mode == "nearest":
            places = _nearest(rounding, centres, size)
            if not np.array_equal(places, np.arange(size)):
                x = low.take(x, places, axis)
            continue
        cubic = mode == "cubic"
        a = float(call.get("cubic_coeff_a", -0.75))
        if not cubic:
            centres = np.clip(centres, 0, size - 1)
        matrix = _shares(centres, size, cubic, a, bool(call.get("exclude_outside", 0)))
        if not np.array_equal(matrix, np.eye(size)):
            low.operator = "Resize"
            x = mix_axis(low, x, matrix, axis)
    return x
