"""Attention with a KV cache, whose angles and masks the host gives, and attention without."""

from __future__ import annotations

from satchel.backends.qnn.decompositions import affine
from satchel.backends.qnn.halves import FLOATS
from satchel.backends.qnn.lowering.state import (
    LOWERINGS,
    NODE_LOWERINGS,
    Attributes,
    CacheInput,
    Inputs,
    Lowering,
    MaskInput,
    given,
)
from satchel.graph.ir import Node, Value, attr_float, attr_int, largest


def _rope(to: Lowering, node: Node) -> Value:
    """The first values of each head rotated by cosine and sine, which the host gives."""
    b = to.b
    x = to.input(given(node, 0))
    cos, sin = _angles(to, given(node, 1))
    half, dim = largest(cos.shape)[2], largest(x.shape)[2]
    first = b.slice(x, axis=2, start=0, stop=half)
    second = b.slice(x, axis=2, start=half, stop=2 * half)
    rotated = [
        b.sub(b.mul(first, cos), b.mul(second, sin)),
        b.add(b.mul(second, cos), b.mul(first, sin)),
    ]
    if 2 * half < dim:
        rotated.append(b.slice(x, axis=2, start=2 * half, stop=dim))
    return b.node("concat", *rotated, axis=2)


def _angles(to: Lowering, table: Value) -> tuple[Value, Value]:
    """A rotary table as two values, each [tokens, 1, half]: inputs that the host gives."""
    tokens, width = largest(table.shape)
    half = width // 2
    if id(table) not in to.on_host:
        parts = [to.b.slice(to.input(table), axis=1, start=at, stop=at + half) for at in (0, half)]
        cos, sin = (to.b.reshape(part, shape=(tokens, 1, half)) for part in parts)
        return cos, sin
    on_host = to.on_host[id(table)]
    known = {v.name: v for v in to.b.graph.inputs}
    made = []
    for part, start in (("cos", 0), ("sin", half)):
        name = f"{on_host.name}.{part}"
        if name not in known:
            sliced = to.host.slice(on_host, axis=1, start=start, stop=start + half)
            to.host.output(to.host.reshape(sliced, shape=(0, 1, half)), name)
            known[name] = to.b.input(name, (to.tokens, 1, half))
        made.append(known[name])
    return made[0], made[1]


def _write_cache(to: Lowering, node: Node) -> Value:
    """The new part of a cache. Keys lie transposed, as their product with queries wants."""
    b, state, x = to.b, node.outputs[0].state, to.input(given(node, 1))
    assert state is not None
    keys = state.endswith(".k")
    transposed = b.transpose(x, perm=(1, 2, 0) if keys else (1, 0, 2))
    # A copy, which is where 16 bits become the cache's 8; floats stay what they are.
    to.new[state] = transposed if to.bits == FLOATS else b.affine(transposed, scale=1.0)
    if not to.tokens:  # no text: all of it is made in one call
        to.result.held.append(state)
        return to.new[state]
    axis = 2 if keys else 1
    shape = list(largest(transposed.shape))
    shape[axis] = to.context
    to.result.caches.append(CacheInput(state, f"{state}.new", axis))
    return b.input(state, tuple(shape))


def _cached_attention(to: Lowering, node: Node) -> Value:
    """Keys and values have a dimension of 1 where queries have the heads that share them.

    With queries folded into rows instead, v69 computes wrong scores without a word.
    """
    b = to.b
    q = to.input(given(node, 0))  # [tokens, heads, dim]
    keys, values = given(node, 1), given(node, 2)
    assert keys.state is not None and values.state is not None
    if keys.state not in to.new:
        return _held_attention(to, node)
    softcap = attr_float(node.attrs, "softcap", 0.0)
    _, heads, dim = largest(q.shape)
    old_keys, old_values = to.input(keys), to.input(values)
    kv_heads, slots = largest(old_keys.shape)[0], to.context + to.tokens
    q = b.transpose(b.affine(q, scale=attr_float(node.attrs, "scale")), perm=(1, 0, 2))
    q = b.reshape(q, shape=(kv_heads, heads // kv_heads, to.tokens, dim))
    k = b.concat(old_keys, to.new[keys.state], axis=2)
    v = b.concat(old_values, to.new[values.state], axis=1)
    scores = b.matmul(q, b.reshape(k, shape=(kv_heads, 1, dim, slots)))
    if softcap:
        scores = b.affine(b.tanh(b.affine(scores, scale=1 / softcap)), scale=softcap)
    scores = b.add(scores, _mask(to, attr_int(node.attrs, "window", 0)))
    v = b.reshape(v, shape=(kv_heads, 1, slots, dim))
    out = b.reshape(b.matmul(b.softmax(scores, axis=-1), v), shape=(heads, to.tokens, dim))
    return b.node("transpose", out, perm=(1, 0, 2))


def _held_attention(to: Lowering, node: Node) -> Value:
    """Over keys and values that another method has made: every token reads all of them."""
    b = to.b
    q = to.input(given(node, 0))  # [tokens, heads, dim]
    _, heads, dim = largest(q.shape)
    keys, values = given(node, 1), given(node, 2)
    slots = largest(keys.shape)[1]
    assert keys.state is not None and values.state is not None
    k = b.input(keys.state, (heads, dim, slots))
    v = b.input(values.state, (heads, slots, dim))
    to.result.held += [keys.state, values.state]
    q = b.transpose(b.affine(q, scale=attr_float(node.attrs, "scale")), perm=(1, 0, 2))
    mixed = b.matmul(b.softmax(b.matmul(q, k), axis=-1), v)
    return b.node("transpose", mixed, perm=(1, 0, 2))


def _mask(to: Lowering, window: int) -> Value:
    mask = MaskInput(f"mask.{window}", window)
    if mask not in to.result.masks:
        to.result.masks.append(mask)
        to.b.input(mask.name, (to.tokens, to.context + to.tokens))
    return next(v for v in to.b.graph.inputs if v.name == mask.name)


def _attention_full(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
    b, (q, k, v, *bias) = to.b, inputs
    q = b.transpose(affine(b, q, attr_float(attrs, "scale"), 0.0), perm=(0, 2, 1, 3))
    scores = b.matmul(q, b.transpose(k, perm=(0, 2, 3, 1)))
    if bias:
        batch, *rest = largest(scores.shape)
        windows = largest(bias[0].shape)[0]  # window n of every image has the bias n
        scores = b.reshape(scores, shape=(batch // windows, windows, *rest))
        scores = b.reshape(b.add(scores, bias[0]), shape=(batch, *rest))
    mixed = b.matmul(b.softmax(scores, axis=-1), b.transpose(v, perm=(0, 2, 1, 3)))
    return b.node("transpose", mixed, perm=(0, 2, 1, 3))


def _attention_qkv(to: Lowering, inputs: Inputs, attrs: Attributes) -> Value:
    b, (qkv, *bias) = to.b, inputs
    batch, tokens, _, heads, dim = largest(qkv.shape)
    parts = [
        b.reshape(b.slice(qkv, axis=2, start=i, stop=i + 1), shape=(batch, tokens, heads, dim))
        for i in range(3)
    ]
    return _attention_full(to, [*parts, *bias], attrs)


NODE_LOWERINGS |= {"rope": _rope, "cache_write": _write_cache, "attention": _cached_attention}
LOWERINGS |= {"attention_full": _attention_full, "attention_qkv": _attention_qkv}
