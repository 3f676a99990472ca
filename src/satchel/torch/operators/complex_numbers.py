"""Complex numbers as pairs of real ones, and Fourier transforms as products with matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from satchel.graph.ir import DType, Shape, Value
from satchel.torch.lowering import Lowering, axis_of
from satchel.torch.operators import elementwise, linear, reduce, shape
from satchel.torch.operators.pool import mix_axis
from satchel.torch.operators.registry import AnyOperator, Operator, OperatorError

COMPLEX: dict[str, Operator] = {}  # operators that take or make complex numbers


@dataclass(frozen=True)
class Pair:
    """A complex tensor: its real and its imaginary part."""

    real: Value
    imaginary: Value

    @property
    def shape(self) -> Shape:
        return self.real.shape


def paired(*names: str) -> Callable[[AnyOperator], AnyOperator]:
    """Register a function for operators on complex numbers."""

    def register(function: AnyOperator) -> AnyOperator:
        COMPLEX.update(dict.fromkeys(names, function))
        return function

    return register


def split_pair(low: Lowering, x: Value) -> Pair:
    """[…, 2] as complex numbers."""
    last = len(x.shape) - 1
    parts = [low.reshape(low.slice(x, last, i, i + 1), x.shape[:-1]) for i in range(2)]
    return Pair(parts[0], parts[1])


def join_pair(low: Lowering, x: Pair) -> Value:
    """Complex numbers as […, 2]."""
    parts = [low.reshape(part, (*part.shape, 1)) for part in (x.real, x.imaginary)]
    return low.concat(parts, len(x.shape))


def as_pair(low: Lowering, x: Any) -> Pair:
    """Real numbers have no imaginary part."""
    if isinstance(x, Pair):
        return x
    if isinstance(x, complex):
        return Pair(low.number(x.real), low.number(x.imag))
    real = low.operand(x, DType.f32)
    return Pair(real, low.affine(real, scale=0.0) if real.shape else low.number(0.0))


def _both(function: Operator) -> Operator:
    """An operator that moves numbers, or adds up such of one tensor, works on each part."""

    def each(low: Lowering, *arguments: Any, **options: Any) -> Any:
        def part(value: Any, name: str) -> Any:
            if isinstance(value, Pair):
                return getattr(value, name)
            return [part(v, name) for v in value] if isinstance(value, list) else value

        results = []
        for name in ("real", "imaginary"):
            results.append(function(low, *(part(a, name) for a in arguments), **options))
        if isinstance(results[0], list):
            return [Pair(*parts) for parts in zip(*results, strict=True)]
        return Pair(results[0], results[1])

    return each


_MOVES: dict[str, Operator] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze"), shape.view),
    **dict.fromkeys(("flatten", "unflatten"), shape.view),
    **dict.fromkeys(("clone", "alias", "detach", "contiguous"), shape.same),
    **dict.fromkeys(("expand", "broadcast_to"), shape.expand),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), shape.split),
    "permute": shape.permute,
    "transpose": shape.transpose,
    "t": shape.swap,
    "slice": shape.piece,
    "select": shape.select,
    "unbind": shape.unbind,
    "flip": shape.flip,
    "roll": shape.roll,
    "repeat": shape.repeat,
    "constant_pad_nd": shape.constant_pad,
    "sum": reduce.total,
    "mean": reduce.mean,
    "neg": elementwise.negate,
}
COMPLEX.update({name: _both(function) for name, function in _MOVES.items()})


@paired("cat", "concat", "stack")
def concatenate(low: Lowering, parts: Sequence[Any], dim: int = 0) -> Pair:
    function = shape.stack if low.operator == "stack" else shape.cat
    pairs = [as_pair(low, part) for part in parts]
    made: Pair = _both(function)(low, pairs, dim)
    return made


@paired("view_as_complex")
def view_as_complex(low: Lowering, x: Value) -> Pair:
    return split_pair(low, x)


@paired("view_as_real", "view_as_real_copy")
def view_as_real(low: Lowering, x: Pair) -> Value:
    return join_pair(low, x)


@paired("complex")
def complex_of(low: Lowering, real: Value, imaginary: Value) -> Pair:
    """Both are brought to the shape of the result."""
    return Pair(low.expand(real, low.shape), low.expand(imaginary, low.shape))


@paired(
    "full", "full_like", "new_full", "scalar_tensor", "zeros", "zeros_like", "ones", "ones_like"
)
def filled(low: Lowering, *arguments: Any, **_options: Any) -> Pair:
    usual = {"zeros": 0.0, "ones": 1.0}.get(low.operator.removesuffix("_like"))
    pair = as_pair(low, complex(arguments[-1] if usual is None else usual))
    return Pair(
        *(low.expand(part, low.shape, low.symbolic) for part in (pair.real, pair.imaginary))
    )


@paired("polar")
def polar(low: Lowering, size: Value, angle: Value) -> Pair:
    return Pair(low.mul(size, low.cos(angle)), low.mul(size, low.sin(angle)))


@paired("real", "imag")
def part_of(low: Lowering, x: Any) -> Value:
    pair = as_pair(low, x)
    return pair.real if low.operator == "real" else pair.imaginary


@paired("_to_copy", "to", "_assert_tensor_metadata")
def convert(low: Lowering, x: Any, *_rest: Any, **_options: Any) -> Any:
    """To complex numbers; to real ones, torch drops the imaginary part."""
    return as_pair(low, x) if low.complex_result else as_pair(low, x).real


@paired("_conj", "conj", "conj_physical", "_conj_physical", "resolve_conj")
def conjugate(low: Lowering, x: Pair) -> Pair:
    if low.operator == "resolve_conj":
        return x
    return Pair(x.real, low.affine(x.imaginary, scale=-1.0))


@paired("add", "sub")
def add(low: Lowering, a: Any, b: Any, *, alpha: Any = 1) -> Pair:
    x, y = as_pair(low, a), as_pair(low, b)
    if alpha != 1:
        y = Pair(*(low.affine(v, scale=float(alpha)) for v in (y.real, y.imaginary)))
    op = low.operator
    return Pair(low.emit(op, x.real, y.real), low.emit(op, x.imaginary, y.imaginary))


@paired("mul")
def mul(low: Lowering, a: Any, b: Any) -> Pair:
    if not isinstance(a, Pair) or not isinstance(b, (Pair, complex)):
        pair, factor = (a, b) if isinstance(a, Pair) else (b, a)
        if isinstance(pair, Pair) and not isinstance(factor, complex):
            real = low.operand(factor, DType.f32)
            return Pair(low.mul(pair.real, real), low.mul(pair.imaginary, real))
    x, y = as_pair(low, a), as_pair(low, b)
    return _product(low, x, y, low.mul)


def _product(low: Lowering, x: Pair, y: Pair, times: Callable[[Value, Value], Value]) -> Pair:
    real = low.sub(times(x.real, y.real), times(x.imaginary, y.imaginary))
    return Pair(real, low.add(times(x.real, y.imaginary), times(x.imaginary, y.real)))


@paired("mm", "bmm", "matmul")
def matmul(low: Lowering, a: Any, b: Any) -> Pair:
    x, y = as_pair(low, a), as_pair(low, b)
    return _product(low, x, y, lambda left, right: linear.matmul(low, left, right))


@paired("reciprocal")
def reciprocal(low: Lowering, x: Pair) -> Pair:
    size = _square(low, x)
    return Pair(low.div(x.real, size), low.affine(low.div(x.imaginary, size), scale=-1.0))


@paired("div", "true_divide")
def div(low: Lowering, a: Any, b: Any) -> Pair:
    if not isinstance(b, (Pair, complex)):
        divisor, x = low.operand(b, DType.f32), as_pair(low, a)
        return Pair(low.div(x.real, divisor), low.div(x.imaginary, divisor))
    return mul(low, as_pair(low, a), reciprocal(low, as_pair(low, b)))


def _square(low: Lowering, x: Pair) -> Value:
    return low.add(low.mul(x.real, x.real), low.mul(x.imaginary, x.imaginary))


@paired("abs")
def absolute(low: Lowering, x: Pair) -> Value:
    return low.sqrt(_square(low, x))


@paired("angle")
def angle(low: Lowering, x: Pair) -> Value:
    return low.atan2(x.imaginary, x.real)


@paired("exp")
def exponential(low: Lowering, x: Pair) -> Pair:
    return polar(low, low.exp(x.real), x.imaginary)


# --- Fourier transforms; norms are 0: none, 1: by the root of the size, 2: by the size ---


def _scale(sizes: Sequence[int], norm: int) -> float:
    count = float(np.prod(sizes))
    return (1.0, 1 / math.sqrt(count), 1 / count)[norm]


def _angles(rows: int, size: int) -> Any:
    """2 pi times row times column over the size, with the product taken modulo the size."""
    turns = np.outer(np.arange(rows), np.arange(size)) % size
    return 2 * np.pi * turns / size


def _transform(low: Lowering, x: Pair, axis: int, inverse: bool, scale: float) -> Pair:
    size = low.known(x.shape[axis], "a Fourier transform")
    turns = _angles(size, size)
    cos = (np.cos(turns) * scale).astype(np.float32)
    sin = (np.sin(turns) * scale * (1 if inverse else -1)).astype(np.float32)

    def mixed(part: Value, matrix: Any) -> Value:
        return mix_axis(low, part, matrix, axis)

    real = low.sub(mixed(x.real, cos), mixed(x.imaginary, sin))
    return Pair(real, low.add(mixed(x.real, sin), mixed(x.imaginary, cos)))


def _sizes(low: Lowering, x: Any, axes: Sequence[int]) -> list[int]:
    return [low.known(x.shape[axis], "a Fourier transform") for axis in axes]


@paired("_fft_c2c")
def transform(low: Lowering, x: Pair, dims: Sequence[int], norm: int, forward: bool) -> Pair:
    axes = [axis_of(d, len(x.shape)) for d in dims]
    scale = _scale(_sizes(low, x, axes), norm)
    for place, axis in enumerate(axes):
        x = _transform(low, x, axis, not forward, scale if place == 0 else 1.0)
    return x


@paired("_fft_r2c")
def transform_real(low: Lowering, x: Value, dims: Sequence[int], norm: int, onesided: bool) -> Pair:
    axes = [axis_of(d, len(x.shape)) for d in dims]
    scale = _scale(_sizes(low, x, axes), norm)
    last = axes[-1]
    size = low.known(x.shape[last], "a Fourier transform")
    turns = _angles(size // 2 + 1 if onesided else size, size)
    found = Pair(
        mix_axis(low, x, (np.cos(turns) * scale).astype(np.float32), last),
        mix_axis(low, x, (-np.sin(turns) * scale).astype(np.float32), last),
    )
    for axis in axes[:-1]:
        found = _transform(low, found, axis, False, 1.0)
    return found


@paired("_fft_c2r")
def transform_to_real(
    low: Lowering, x: Pair, dims: Sequence[int], norm: int, last_size: int
) -> Value:
    """The inverse; of the last axis the half that is left out mirrors the other."""
    axes = [axis_of(d, len(x.shape)) for d in dims]
    size = low.known(last_size, "a Fourier transform")
    scale = _scale([*_sizes(low, x, axes[:-1]), size], norm)
    for axis in axes[:-1]:
        x = _transform(low, x, axis, True, 1.0)
    last = axes[-1]
    half = size // 2 + 1
    have = low.known(x.shape[last], "a Fourier transform")
    if have != half:
        raise OperatorError(f"an inverse transform to {size} numbers from {have}")
    turns = _angles(size, size)[:, :half]
    twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == size), 1.0, 2.0) * scale
    cos, sin = ((f(turns) * twice).astype(np.float32) for f in (np.cos, np.sin))
    return low.sub(mix_axis(low, x.real, cos, last), mix_axis(low, x.imaginary, sin, last))
