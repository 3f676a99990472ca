"""Pooling over images and sequences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Attribute, Dim, DType, Sym, Value
from satchel.torch.lowering import Lowering, product_of
from satchel.torch.operators.compare import logical_and
from satchel.torch.operators.conv import both, to_channels_first, to_channels_last
from satchel.torch.operators.registry import OperatorError, aten
from satchel.torch.operators.volume import triple

Array = NDArray[Any]
Sizes = int | Sequence[int]


def pool_image(
    low: Lowering, op: str, x: Value, spatial: int, attrs: dict[str, Attribute]
) -> Value:
    """Pooling over the last dimensions of [N, C, …] or [C, …]."""
    batched = len(x.shape) == spatial + 2
    image = x if batched else low.reshape(x, (1, *x.shape))
    out = low.emit(op, to_channels_last(low, image, spatial), **attrs)
    result = to_channels_first(low, out, spatial)
    return result if batched else low.reshape(result, result.shape[1:])


def _window(kernel: Sizes, stride: Sizes, padding: Sizes, spatial: int) -> dict[str, Attribute]:
    above, left = both(padding, spatial, 0)
    return {
        "kernel": both(kernel, spatial, 1),
        "stride": both(stride if stride or stride == 0 else kernel, spatial, 1),
        "padding": (above, above, left, left),
    }


@aten("max_pool1d", "max_pool2d", "max_pool2d_with_indices")
def max_pool(
    low: Lowering,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Value | list[Value | None]:
    spatial = 1 if low.operator == "max_pool1d" else 2
    window = [
        list(both(v, spatial, 1))[-spatial:] for v in (kernel, stride or kernel, padding, dilation)
    ]
    if x.dtype in (DType.i32, DType.i64):
        result = _greatest_of_whole(low, x, *window)
    else:
        attrs = _window(kernel, stride, padding, spatial)
        attrs |= {"dilation": both(dilation, spatial, 1), "ceil_mode": int(ceil_mode)}
        result = pool_image(low, "max_pool2d", x, spatial, attrs)
    if not low.operator.endswith("with_indices"):
        return result
    return [result, _greatest_places(low, x, *window) if 1 in low.used else None]


def _written_out(low: Lowering, x: Value, *settings: Sequence[int]) -> tuple[Value, Array]:
    """What each window sees, [images, taps, windows], and which pixels these are, [taps, windows].

    The settings are kernel, stride, padding and dilation of each dimension. A tap outside of the
    image sees what the window's first tap inside does, which changes no extreme.
    """
    spatial = len(settings[0])
    sizes = [low.known(d, "max_pool") for d in x.shape[-spatial:]]
    wanted = [low.known(d, "max_pool") for d in low.shape[-spatial:]]
    places = np.zeros((1, 1), np.int64)
    for size, count, kernel, stride, padding, dilation in zip(
        sizes, wanted, *settings, strict=True
    ):
        own = np.arange(kernel)[:, None] * dilation + np.arange(count) * stride - padding
        own = np.where((own < 0) | (own >= size), -1, own)
        joined = places[:, None, :, None] * size + own[None, :, None, :]
        outside = (places[:, None, :, None] < 0) | (own[None, :, None, :] < 0)
        places = np.where(outside, -1, joined).reshape(len(places) * kernel, -1)
    inside = np.take_along_axis(places, (places >= 0).argmax(0)[None], 0)
    places = np.where(places < 0, inside, places).astype(np.int32)
    pixels = int(np.prod(sizes, dtype=np.int64))
    outer = product_of(x.shape[:-spatial])
    taken = low.take(low.reshape(x, (outer, pixels)), places.reshape(-1), 1)
    return low.reshape(taken, (outer, *places.shape)), places


def _greatest_places(low: Lowering, x: Value, *settings: Sequence[int]) -> Value:
    """Which pixel of its image is the greatest of each window, the first of equals."""
    seen, places = _written_out(low, x, *settings)
    if seen.dtype == DType.f32:
        tap = low.argmax(seen, axis=1, keepdims=1)
    else:  # which floats would round
        tap = low.slice(low.argsort(seen, axis=1, descending=1), 1, 0, 1)
    numbers = low.expand(low.constant(places[None], "places"), seen.shape, seen)
    found = low.gather(numbers, tap, axis=1)
    return low.cast(low.reshape(found, low.shape), DType.i64)


def _greatest_of_whole(low: Lowering, x: Value, *settings: Sequence[int]) -> Value:
    seen, _ = _written_out(low, x, *settings)
    return low.reshape(low.reduce_max(seen, axes=(1,), keepdims=0), low.shape)


@aten("avg_pool1d", "avg_pool2d")
def avg_pool(
    low: Lowering,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Value:
    spatial = 1 if low.operator == "avg_pool1d" else 2
    attrs = _window(kernel, stride, padding, spatial)
    if ceil_mode and not any(both(padding, spatial, 0)) and divisor is None:
        # A window that is larger than the image sees all of it.
        sizes = (*(1 for _ in range(2 - spatial)), *x.shape[-spatial:])
        taps = zip(both(kernel, spatial, 1), sizes, strict=True)
        attrs["kernel"] = tuple(min(k, d) if isinstance(d, int) else k for k, d in taps)
    attrs |= {"ceil_mode": int(ceil_mode), "count_include_pad": int(count_include_pad)}
    if divisor is not None:
        attrs["divisor"] = abs(divisor)
    result = pool_image(low, "avg_pool2d", x, spatial, attrs)
    return low.neg(result) if divisor is not None and divisor < 0 else result


@aten("max_pool3d", "max_pool3d_with_indices", "avg_pool3d")
def pool_3d(
    low: Lowering,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    *rest: Any,
) -> Value | list[Value | None]:
    """Over height and width, and then over the depth: extremes and means are separable."""
    kind = low.operator
    steps = triple(stride if stride or stride == 0 else kernel)
    sizes, edges = triple(kernel), triple(padding)
    if x.dtype in (DType.i32, DType.i64) and kind != "avg_pool3d":
        window = (sizes, steps, edges, triple(rest[0]) if rest else [1, 1, 1])
        places = _greatest_places(low, x, *window) if 1 in low.used else None
        whole = _greatest_of_whole(low, x, *window)
        return [whole, places] if kind.endswith("with_indices") else whole
    depth, height, width = (low.known(d, kind) for d in x.shape[-3:])
    outer = product_of(x.shape[:-3])
    made = low.reshape(x, (outer, depth, height, width))
    is_mean = kind == "avg_pool3d"
    means = (False, True, None)  # ceil_mode, count_include_pad, divisor_override
    ceil_mode, inside, divisor = (*rest, *means[len(rest) :]) if is_mean else means
    gaps = [1, 1, 1]
    if not is_mean:
        gaps = triple(rest[0]) if rest else gaps
        ceil_mode = rest[1] if len(rest) > 1 else False

    def over(value: Value, size: Sizes, step: Sizes, edge: Sizes, gap: Sizes) -> Value:
        low.operator = "avg_pool2d" if is_mean else "max_pool2d"
        if is_mean:
            each = 1 if divisor else None
            return avg_pool(low, value, size, step, edge, ceil_mode, inside, each)
        result = max_pool(low, value, size, step, edge, gap, ceil_mode)
        assert isinstance(result, Value)
        return result

    made = over(made, sizes[1:], steps[1:], edges[1:], gaps[1:])
    rows, columns = (low.known(d, kind) for d in made.shape[2:])
    made = low.reshape(made, (outer, 1, depth, rows * columns))
    made = over(made, (sizes[0], 1), (steps[0], 1), (edges[0], 0), (gaps[0], 1))
    if divisor:
        made = low.affine(made, scale=1 / divisor)
    result = low.reshape(made, low.shape)
    if not kind.endswith("with_indices"):
        return result
    asked = 1 in low.used
    return [result, _greatest_places(low, x, sizes, steps, edges, gaps) if asked else None]


def _target(low: Lowering, x: Value, wanted: Sequence[int | None]) -> list[tuple[int, int, int]]:
    """(axis, size, wanted size) of each dimension that is pooled."""
    first = len(x.shape) - len(wanted)
    sizes = [low.known(x.shape[first + i], "adaptive pooling") for i in range(len(wanted))]
    return [(first + i, s, w or s) for i, (s, w) in enumerate(zip(sizes, wanted, strict=True))]


@aten(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "_adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool3d",
)
def adaptive_avg_pool(low: Lowering, x: Value, wanted: Sequence[int | None]) -> Value:
    if all(want == 1 for want in wanted):
        first = len(x.shape) - len(wanted)
        return low.reduce_mean(x, axes=tuple(range(first, len(x.shape))), keepdims=1)
    if any(isinstance(size, Sym) for size in x.shape[-len(wanted) :]):
        return _mean_of_symbolic(low, x, wanted)
    target = _target(low, x, wanted)
    if len(target) < 3 and all(size % want == 0 for _, size, want in target):
        kernel = [size // want for _, size, want in target]
        low.operator = f"avg_pool{len(target)}d"
        result = avg_pool(low, x, kernel, kernel)
        assert isinstance(result, Value)
        return result
    # Windows of different lengths are rows of a matrix of shares, one for each dimension.
    for axis, size, want in target:
        shares = np.zeros((want, size), np.float32)
        for row, (start, stop) in enumerate(_windows(size, want)):
            shares[row, start:stop] = 1 / (stop - start)
        x = mix_axis(low, x, shares, axis)
    return x


def _mean_of_symbolic(low: Lowering, x: Value, wanted: Sequence[int | None]) -> Value:
    """The same matrices of shares, computed from the size that a call has."""
    rank, first = len(x.shape), len(x.shape) - len(wanted)
    for axis, want in enumerate(wanted, first):
        size = x.shape[axis]
        if want is None or want == size:
            continue
        seen, length = _seen_by(low, size, want)
        shares = low.div(low.floats(seen), low.floats(length))
        last = [*(i for i in range(rank) if i != axis), axis]
        lines = low.transpose(x, last)
        mixed = low.matmul(lines if rank > 1 else low.reshape(x, (1, size)), shares)
        x = low.transpose(mixed, [last.index(i) for i in range(rank)])
    return x


def _seen_by(low: Lowering, size: Dim, want: int) -> tuple[Value, Value]:
    """Which entries of an axis each window sees, [size, want], and how many, [want]."""
    number = partial(low.number, dtype=DType.i32)
    every = low.operand(size, DType.i32)
    windows = low.constant(np.arange(want, dtype=np.int32), "windows")
    first = low.integer(low.mul(windows, every), number(want), kind="floor_div")
    ends = low.add(low.mul(low.add(windows, number(1)), every), number(want - 1))
    stop = low.integer(ends, number(want), kind="floor_div")
    entries = low.reshape(low.count(size), (size, 1))
    seen = logical_and(
        low, low.compare(entries, first, kind="ge"), low.compare(entries, stop, kind="lt")
    )
    return seen, low.sub(stop, first)


def mix_axis(low: Lowering, x: Value, matrix: np.ndarray, axis: int) -> Value:
    """The product of a matrix with one axis of x."""
    rank = len(x.shape)
    last = [*(i for i in range(rank) if i != axis), axis]
    back = [last.index(i) for i in range(rank)]
    mixed = low.emit("linear", low.transpose(x, last), low.constant(matrix, f"{low.operator}.mix"))
    return low.transpose(mixed, back)


def _windows(size: int, wanted: int) -> list[tuple[int, int]]:
    return [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(low: Lowering, x: Value, wanted: Sequence[int | None]) -> list[Value | None]:
    if any(isinstance(size, Sym) for size in x.shape[-len(wanted) :]):
        return [_greatest_of_symbolic(low, x, wanted), None]
    targets = _target(low, x, wanted)
    places = _adaptive_places(low, x, targets) if 1 in low.used else None
    for axis, size, want in targets:
        if want > 64:
            raise OperatorError(f"adaptive max pooling to a size of {want}")
        parts = [
            low.reduce_max(low.slice(x, axis, start, stop), axes=(axis,), keepdims=1)
            for start, stop in _windows(size, want)
        ]
        x = low.concat(parts, axis)
    return [x, places]


def _greatest_of_symbolic(low: Lowering, x: Value, wanted: Sequence[int | None]) -> Value:
    if 1 in low.used or x.dtype != DType.f32:
        raise OperatorError("the places of the largest numbers, or whole ones, of a symbolic size")
    first = len(x.shape) - len(wanted)
    for axis, want in enumerate(wanted, first):
        size = x.shape[axis]
        if want is None or want == size:
            continue
        if want > 64:
            raise OperatorError(f"adaptive max pooling to a size of {want}")
        seen, _ = _seen_by(low, size, want)
        parts = []
        for window in range(want):
            own = low.slice(seen, 1, window, window + 1)
            wide = low.reshape(own, (size, *(1 for _ in x.shape[axis + 1 :])))
            masked = low.where(wide, x, low.number(-math.inf)) if want > 1 else x
            parts.append(low.reduce_max(masked, axes=(axis,), keepdims=1))
        x = low.concat(parts, axis)
    return x


def _adaptive_places(low: Lowering, x: Value, targets: Sequence[tuple[int, int, int]]) -> Value:
    """Where in its image each window's largest number is, window by window."""
    sizes = [size for _, size, _ in targets]
    numbers = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)
    if math.prod(want for _, _, want in targets) > 256:
        raise OperatorError("the places of so many windows' largest numbers")
    lead = x.shape[: targets[0][0]]
    found = []
    for window in itertools.product(*(_windows(size, want) for _, size, want in targets)):
        seen = x
        for (axis, _, _), (start, stop) in zip(targets, window, strict=True):
            seen = low.slice(seen, axis, start, stop)
        own = numbers[tuple(slice(*ends) for ends in window)].reshape(-1)
        best = low.argmax(low.reshape(seen, (*lead, own.size)), axis=len(lead), keepdims=0)
        found.append(low.emit("take", low.constant(own, "places"), _flat(low, best), axis=0))
    rows = [low.reshape(one, (*lead, 1)) for one in found]
    whole = low.concat(rows, len(lead))
    shape = (*lead, *(want for _, _, want in targets))
    return low.cast(low.reshape(whole, shape), DType.i64)


def _flat(low: Lowering, x: Value) -> Value:
    return low.emit("reshape", x, shape=(-1,))
