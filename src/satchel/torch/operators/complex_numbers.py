"""Complex numbers as pairs of real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from satchel.graph.ir import DType, Shape, Value
from satchel.torch.lowering import Lowering, Number
from satchel.torch.operators import (
    compare,
    create,
    distance,
    elementwise,
    index,
    linear,
    reduce,
    scatter,
    shape,
)
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
    "sum": reduce.total,
    "mean": reduce.mean,
    "neg": elementwise.negate,
    "cumsum": reduce.cumulate,
    **dict.fromkeys(("index", "_unsafe_index"), index.index),
    "index_select": index.index_select,
    "gather": index.gather,
    "tril": create.tril,
    "triu": create.triu,
}
COMPLEX.update({name: _both(function) for name, function in _MOVES.items()})

# Of two tensors, of which one may be real.
_JOINS: dict[str, Operator] = {
    "slice_scatter": shape.slice_scatter,
    "select_scatter": scatter.select_scatter,
}


def _of_two(function: Operator) -> Operator:
    def both(low: Lowering, x: Any, y: Any, *rest: Any) -> Any:
        return _both(function)(low, as_pair(low, x), as_pair(low, y), *rest)

    return both


COMPLEX.update({name: _of_two(function) for name, function in _JOINS.items()})


@paired("copy")
def copy(low: Lowering, x: Any, source: Any, *rest: Any) -> Any:
    """What is real keeps the real part alone, as torch has it."""
    y = as_pair(low, source)
    if not isinstance(x, Pair):
        return shape.copy(low, x, y.real, *rest)
    return _both(shape.copy)(low, x, y, *rest)


@paired("index_put", "_unsafe_index_put")
def index_put(low: Lowering, x: Any, numbers: Any, source: Any, accumulate: bool = False) -> Any:
    both = _both(scatter.index_put)
    return both(low, as_pair(low, x), numbers, as_pair(low, source), accumulate)


@paired("index_add", "index_copy")
def index_add(
    low: Lowering, x: Any, dim: int, numbers: Value, source: Any, *, alpha: Number = 1
) -> Any:
    both = _both(scatter.index_add)
    return both(low, as_pair(low, x), dim, numbers, as_pair(low, source), alpha=alpha)


@paired("where")
def where(low: Lowering, condition: Value, a: Any, b: Any) -> Any:
    return _both(compare.where)(low, condition, as_pair(low, a), as_pair(low, b))


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


@paired("linear")
def linear_layer(low: Lowering, a: Any, weight: Any, bias: Any = None) -> Pair:
    x, y = as_pair(low, a), as_pair(low, weight)
    product = _product(low, x, y, lambda left, right: linear.linear(low, left, right))
    return product if bias is None else _sum(low, product, as_pair(low, bias))


@paired("addmm", "baddbmm")
def addmm(low: Lowering, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Pair:
    product, added = matmul(low, a, b), as_pair(low, bias)
    if alpha != 1:
        product = mul(low, product, alpha)
    if beta == 0:
        return product
    return _sum(low, product, added if beta == 1 else mul(low, added, beta))


def _sum(low: Lowering, x: Pair, y: Pair) -> Pair:
    return Pair(low.add(x.real, y.real), low.add(x.imaginary, y.imaginary))


@paired("constant_pad_nd", "pad")
def pad(
    low: Lowering, x: Pair, widths: Sequence[int], mode: Any = "constant", value: Any = None
) -> Pair:
    if not isinstance(mode, str):  # constant_pad_nd's value stands there
        mode, value = "constant", mode
    filled = complex(value or 0)
    return Pair(
        shape.pad(low, x.real, widths, mode, filled.real),
        shape.pad(low, x.imaginary, widths, mode, filled.imag),
    )


@paired("linalg_vector_norm")
def vector_norm(low: Lowering, x: Pair, *rest: Any, dtype: Any = None) -> Value:
    return distance.vector_norm(low, absolute(low, x), *rest)


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


@paired("log")
def logarithm(low: Lowering, x: Pair) -> Pair:
    return Pair(low.log(absolute(low, x)), angle(low, x))


@paired("sqrt")
def square_root(low: Lowering, x: Pair) -> Pair:
    """The greater part first, and the other one from it, so that nothing cancels out."""
    zero = low.number(0.0)
    size = low.affine(low.add(absolute(low, x), low.abs(x.real)), scale=0.5)
    greater = low.sqrt(size)
    none = low.compare(greater, zero, kind="eq")
    twice = low.affine(low.where(none, low.number(1.0), greater), scale=2.0)
    lesser = low.div(low.abs(x.imaginary), twice)
    left = low.compare(x.real, zero, kind="lt")
    below = low.compare(x.imaginary, zero, kind="lt")
    imaginary = low.where(left, greater, lesser)
    return Pair(
        low.where(left, lesser, greater),
        low.where(below, low.affine(imaginary, scale=-1.0), imaginary),
    )


@paired("pow")
def power(low: Lowering, x: Any, exponent: Any) -> Pair:
    if not isinstance(x, Pair) or not isinstance(exponent, (int, float)):
        raise OperatorError("of complex numbers to the power of such")
    if exponent in (2, 3):
        return mul(low, x, x) if exponent == 2 else mul(low, mul(low, x, x), x)
    size = low.emit("pow", absolute(low, x), low.number(float(exponent)))
    return polar(low, size, low.affine(angle(low, x), scale=float(exponent)))


@paired("sgn")
def direction(low: Lowering, x: Pair) -> Pair:
    size = absolute(low, x)
    none = low.compare(size, low.number(0.0), kind="eq")
    return div(low, x, low.where(none, low.number(1.0), size))


@paired("eq", "ne")
def equal(low: Lowering, a: Any, b: Any) -> Value:
    x, y = as_pair(low, a), as_pair(low, b)
    parts = [
        low.cast(low.compare(left, right, kind="eq"), DType.i32)
        for left, right in ((x.real, y.real), (x.imaginary, y.imaginary))
    ]
    both = low.mul(*parts)
    wanted = int(low.operator == "eq")
    return low.compare(both, low.number(wanted, DType.i32), kind="eq")


@paired("exp")
def exponential(low: Lowering, x: Pair) -> Pair:
    return polar(low, low.exp(x.real), x.imaginary)
