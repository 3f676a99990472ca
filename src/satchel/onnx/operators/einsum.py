"""Einsum of one or two inputs: sums, transposes and one product."""

from __future__ import annotations

from satchel.graph.ir import DType, Value
from satchel.onnx.operators.registry import Call, known_shape, onnx_operator, product
from satchel.torch.lowering import Lowering
from satchel.torch.operator_error import OperatorError
from satchel.torch.operators.linear import matmul


@onnx_operator("Einsum")
def einsum(low: Lowering, call: Call, *inputs: Value) -> Value:
    text = str(call.get("equation")).replace(" ", "")
    left, arrow, wanted = text.partition("->")
    terms = left.split(",")
    if "." in text:
        raise OperatorError("Einsum with an ellipsis")
    if any(len(set(term)) != len(term) for term in terms) or len(terms) > 2:
        raise OperatorError(f"Einsum of {text}")
    if not arrow:
        letters = left.replace(",", "")
        wanted = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(terms) == 1:
        x, term = _summed(low, inputs[0], terms[0], set(wanted))
        return low.transpose(x, [term.index(c) for c in wanted])
    (a, one), (b, two) = (
        _summed(low, x, term, set(wanted) | set(other))
        for x, term, other in zip(inputs, terms, terms[::-1], strict=True)
    )
    shared = [c for c in one if c in two and c in wanted]
    inner = [c for c in one if c in two and c not in wanted]
    rows = [c for c in one if c not in two]
    columns = [c for c in two if c not in one]
    sizes = dict(zip(one, known_shape(low, a, "Einsum"), strict=True))
    sizes |= dict(zip(two, known_shape(low, b, "Einsum"), strict=True))

    def arranged(x: Value, term: str, *groups: list[str]) -> Value:
        transposed = low.transpose(x, [term.index(c) for group in groups for c in group])
        return low.reshape(transposed, tuple(product([sizes[c] for c in g]) for g in groups))

    low.dtype = DType.f32
    made = matmul(
        low, arranged(a, one, shared, rows, inner), arranged(b, two, shared, inner, columns)
    )
    order = [*shared, *rows, *columns]
    made = low.reshape(made, tuple(sizes[c] for c in order))
    return low.transpose(made, [order.index(c) for c in wanted])


def _summed(low: Lowering, x: Value, term: str, kept: set[str]) -> tuple[Value, str]:
    """Without what neither the result nor the other input has."""
    axes = tuple(i for i, c in enumerate(term) if c not in kept)
    if axes:
        x = low.reduce_sum(x, axes=axes, keepdims=0)
    return x, "".join(c for c in term if c in kept)
