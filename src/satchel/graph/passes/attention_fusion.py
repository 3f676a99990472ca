"""Finds attention that a program has written out, and makes it one op.

    softmax(q k^T * scale + constants) v

Where queries, keys and values are parts of what one layer made, the op reads them there; where its
tokens are windows of an image, it is told which rows they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Attribute, Graph, Node, TensorType, Value, attr_float, attr_int
from satchel.graph.passes.origins import Origin, Origins, elements, is_known, known_shape

Array = NDArray[Any]


@dataclass
class _Attention:
    """The origins of q, k and v are [batch, heads, tokens, size]; all scores get the bias."""

    origins: tuple[Origin, Origin, Origin]
    scale: float
    bias: Array | None
    node: Node  # that makes the result
    parts: set[int]  # ids of all nodes that belong to it
    # If it is written out: q, k transposed and v, and the scale without factors of q and k.
    written_out: tuple[Value, Value, Value] | None = None
    outer_scale: float = 1.0


def fuse_attention(graph: Graph) -> None:
    """Replace attention that is written out, and that of parts of one value, by one op."""
    origins = Origins(graph, "attention")
    kept: list[Node] = []
    for node in graph.nodes:
        found = _written_out(node, origins) or _of_parts(node, origins)
        if found is not None and found.written_out and _blind(found.bias):
            found = None  # softmax makes NaN of such a row, and the op 0
        if found is None or not (
            _one_source(found, origins, kept) or _general(found, origins, kept)
        ):
            kept.append(node)
    graph.nodes = kept


def _blind(bias: Array | None) -> bool:
    """Whether some query sees no key at all."""
    return bias is not None and bool(np.isneginf(bias).all(axis=-1).any())


def _of_parts(node: Node, origins: Origins) -> _Attention | None:
    """attention_full without a bias, or with one that is constant."""
    if node.op != "attention_full" or not all(v and is_known(v) for v in node.inputs[:3]):
        return None
    bias = node.inputs[3] if len(node.inputs) > 3 else None
    if bias is not None and bias.constant is None:
        return None
    found = [origins.of(v) for v in node.inputs[:3] if v is not None]
    transposed = [_transposed(one, (0, 2, 1, 3)) for one in found if one is not None]
    if len(transposed) != 3 or transposed[0].source is not transposed[1].source:
        return None
    batch, heads, queries, _ = transposed[0].numbers.shape
    scores = (batch, heads, queries, transposed[1].numbers.shape[2])
    array = None
    if bias is not None and bias.constant is not None:
        repeats = batch // len(bias.constant)
        array = np.broadcast_to(np.tile(bias.constant, (repeats, 1, 1, 1)), scores)
    scale = attr_float(node.attrs, "scale")
    return _Attention((transposed[0], transposed[1], transposed[2]), scale, array, node, {id(node)})


def _transposed(origin: Origin, perm: tuple[int, ...]) -> Origin:
    return Origin(origin.source, origin.numbers.transpose(perm))


def _written_out(node: Node, origins: Origins) -> _Attention | None:
    """The product with the values, whose weights come from a softmax of scores."""
    if node.op != "matmul":
        return None
    weights, values = node.inputs
    softmax = _single_maker(weights, origins)
    if softmax is None or softmax.op != "softmax" or weights is None or values is None:
        return None
    rank = len(weights.shape)
    if rank not in (3, 4) or attr_int(softmax.attrs, "axis", -1) not in (-1, rank - 1):
        return None
    if not is_known(weights) or len(values.shape) != rank:
        return None
    parts = {id(node), id(softmax)}
    scores = _scores(softmax.inputs[0], origins, parts)
    if scores is None:
        return None
    product, scale, bias = scores
    q, k = product.inputs
    found = [origins.of(v) if v is not None else None for v in (q, k, values)]
    transposed = [one for one in found if one is not None and one.numbers.ndim == rank]
    if q is None or k is None or len(transposed) != 3:
        return None
    factor = scale
    for place in range(2):
        transposed[place], own = _without_factor(transposed[place], origins, parts)
        factor *= own
    transposed[1] = _transposed(transposed[1], (*range(rank - 2), rank - 1, rank - 2))
    if rank == 3:
        transposed = [Origin(one.source, one.numbers[None]) for one in transposed]
        bias = None if bias is None else bias[None]
    shapes = [one.numbers.shape for one in transposed]
    if shapes[0][:2] != shapes[1][:2] or shapes[1][:3] != shapes[2][:3]:
        return None
    first, second, third = transposed
    return _Attention((first, second, third), factor, bias, node, parts, (q, k, values), scale)


def _single_maker(value: Value | None, origins: Origins) -> Node | None:
    """What makes a value that only one node reads."""
    if (
        value is None
        or id(value) in origins.outputs
        or len(origins.readers.get(id(value), [])) != 1
    ):
        return None
    return origins.makers.get(id(value))


def _scores(
    value: Value | None, origins: Origins, parts: set[int]
) -> tuple[Node, float, Array | None] | None:
    """The product of queries and keys, and what becomes of it: product * factor + bias."""
    factor, bias = 1.0, None
    while value is not None:
        node = _single_maker(value, origins)
        if node is None:
            return None
        parts.add(id(node))
        if node.op == "matmul":
            return node, factor, bias
        scaled = _scaled(node)
        source = node.inputs[0]
        if scaled is not None:
            source, factor = scaled[0], factor * scaled[1]
        elif node.op == "add":
            source, constant = _with_constant(node)
            if constant is None or constant.constant is None:
                return None
            added = np.float32(factor) * np.broadcast_to(constant.constant, known_shape(value))
            bias = added if bias is None else bias + added
        elif node.op == "reshape" and source is not None and is_known(source):
            bias = None if bias is None else bias.reshape(known_shape(source))
        else:
            return None
        if source is None or (node.op != "reshape" and source.shape != value.shape):
            return None
        value = source
    return None


def _with_constant(node: Node) -> tuple[Value | None, Value | None]:
    """(the other operand, the constant one) of a sum or product."""
    left, right = node.inputs
    if right is not None and right.constant is not None:
        return left, right
    if left is not None and left.constant is not None:
        return right, left
    return left, None


def _scaled(node: Node) -> tuple[Value | None, float] | None:
    """What is multiplied by one number, and the number."""
    if node.op == "affine" and attr_float(node.attrs, "shift", 0.0) == 0:
        return node.inputs[0], attr_float(node.attrs, "scale", 1.0)
    if node.op not in ("mul", "div"):
        return None
    source, constant = _with_constant(node)
    if constant is None or constant.constant is None or constant.constant.size != 1:
        return None
    number = float(constant.constant.reshape(-1)[0])
    if node.op == "mul":
        return source, number
    usual = node.inputs[1] is constant and number != 0
    return (source, 1 / number) if usual else None


def _without_factor(found: Origin, origins: Origins, parts: set[int]) -> tuple[Origin, float]:
    """The origin of what is multiplied by a number before it is moved, and the number."""
    node = _single_maker(found.source, origins)
    scaled = _scaled(node) if node is not None else None
    if node is None or scaled is None or scaled[0] is None or scaled[0].shape != found.source.shape:
        return found, 1.0
    inner = origins.of(scaled[0])
    if inner is None:
        return found, 1.0
    parts.add(id(node))
    return Origin(inner.source, inner.numbers.reshape(-1)[found.numbers]), scaled[1]


# --- writing it as one op ---


def _one_source(found: _Attention, origins: Origins, nodes: list[Node]) -> bool:
    """attention_qkv, if rows of one value hold query, key and value of a token."""
    q, k, v = found.origins
    one = q.source is k.source is v.source
    if one and not origins.replaces(q.source, found.parts):
        q, k, v = (origins.unswapped(part) for part in found.origins)
    source = q.source
    batch, heads, tokens, size = q.numbers.shape
    width = heads * size
    same = q.numbers.shape == k.numbers.shape == v.numbers.shape
    if not one or not same or not source.shape or known_shape(source)[-1] != 3 * width:
        return False
    if elements(source) != batch * tokens * 3 * width:
        return False
    # [batch, heads, tokens, size]: where the elements of a head lie in a row.
    places = np.arange(heads)[:, None, None] * size + np.arange(size)
    rows = q.numbers[:, 0, :, 0] // (3 * width)
    first = (rows * 3 * width)[:, None, :, None]
    for part, origin in enumerate((q, k, v)):
        if not (origin.numbers == first + part * width + places).all():
            return False
    order = rows.reshape(-1)
    if not (np.sort(order) == np.arange(order.size)).all():
        return False
    in_order = bool((order == np.arange(order.size)).all())
    inputs: list[Value | None] = []
    origins.take_planned(source, nodes)
    shape = (batch, tokens, 3, heads, size)
    inputs.append(_placed(origins.node("reshape", [source], {"shape": shape}), origins, nodes))
    bias, kinds = _packed_bias(found.bias)
    inputs.append(None if bias is None else origins.constant("bias", bias))
    inputs.append(None if in_order else origins.constant("rows", rows.astype(np.int32)))
    inputs.append(None if kinds is None else origins.constant("kinds", kinds))
    while inputs[-1] is None:
        inputs.pop()
    made = _placed(origins.node("attention_qkv", inputs, {"scale": found.scale}), origins, nodes)
    if not in_order:
        flat: dict[str, Attribute] = {"shape": (batch * tokens, width)}
        made = _placed(origins.node("reshape", [made], flat), origins, nodes)
        numbers = origins.constant("rows", order.astype(np.int32))
        made = _placed(origins.node("take", [made, numbers], {"axis": 0}), origins, nodes)
        back: dict[str, Attribute] = {"shape": (batch, tokens, heads, size)}
        made = _placed(origins.node("reshape", [made], back), origins, nodes)
    _finish(found, made, nodes)
    return True


def _general(found: _Attention, origins: Origins, nodes: list[Node]) -> bool:
    """attention_full, of attention that is written out; the turns will meet others and vanish."""
    if found.written_out is None or len(found.written_out[0].shape) != 4:
        return False
    inputs: list[Value | None] = []
    for value, perm in zip(
        found.written_out, ((0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 1, 3)), strict=True
    ):
        inputs.append(_placed(origins.node("transpose", [value], {"perm": perm}), origins, nodes))
    bias, kinds = _packed_bias(found.bias)
    if bias is not None:
        whole = bias if kinds is None else bias[kinds]
        inputs.append(origins.constant("bias", np.ascontiguousarray(whole)))
    attrs: dict[str, Attribute] = {"scale": found.outer_scale}
    made = _placed(origins.node("attention_full", inputs, attrs), origins, nodes)
    _finish(found, made, nodes)
    return True


def _placed(node: Node, origins: Origins, nodes: list[Node]) -> Value:
    origins.take_planned(node.outputs[0], nodes)
    return node.outputs[0]


def _finish(found: _Attention, made: Value, nodes: list[Node]) -> None:
    """From [batch, tokens, heads, size] to what the replaced node made."""
    result = found.node.outputs[0]
    if found.written_out is None:
        nodes.append(Node("reshape", [made], [result], {"shape": known_shape(result)}))
        return
    batch, tokens, heads, size = known_shape(made)
    transposed = result
    if len(result.shape) == 3:
        transposed = Value(f"{result.name}.transposed", TensorType((batch, heads, tokens, size)))
    nodes.append(Node("transpose", [made], [transposed], {"perm": (0, 2, 1, 3)}))
    if transposed is not result:
        nodes.append(Node("reshape", [transposed], [result], {"shape": known_shape(result)}))


def _packed_bias(bias: Array | None) -> tuple[Array | None, Array | None]:
    """Each kind of bias once, and the kinds of the batch's entries if there are several."""
    if bias is None or not bias.any():
        return None, None
    kinds, numbers = np.unique(bias, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    if (kinds == kinds[:, :1]).all():
        kinds = kinds[:, :1]
    if len(kinds) == 1:
        return np.ascontiguousarray(kinds, np.float32), None
    return np.ascontiguousarray(kinds, np.float32), numbers.astype(np.int32)
