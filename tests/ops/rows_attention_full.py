"""Rows of the op table: attention of all queries over all keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from satchel.graph.ir import Sym
from support.arrays import integers, normal, uniform
from support.op_case import Input, OpCase, case

B, S = Sym("B", 3), Sym("S", 20)


def _full(scale: float) -> Callable[..., Any]:
    def attend(t: Any, q: Any, k: Any, v: Any, bias: Any = None) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if bias is not None:
            bias = bias.repeat(len(q) // len(bias), 1, 1, 1).expand(-1, q.shape[1], q.shape[2], -1)
        attention = t.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, bias, scale=scale).transpose(1, 2)

    return attend


def _packed(scale: float) -> Callable[..., Any]:
    def attend(t: Any, qkv: Any, bias: Any = None) -> Any:
        return _full(scale)(t, *qkv.unbind(2), bias)

    return attend


# (batch, queries, keys, heads, head size, size of values, shape of the bias)
SIZES: tuple[tuple[int, int, int, int, int, int, tuple[int, ...] | None], ...] = (
    (1, 1, 1, 1, 1, 1, None),
    (2, 3, 5, 2, 8, 8, None),
    (1, 17, 33, 3, 20, 7, None),
    (1, 230, 40, 2, 16, 33, None),
    (6, 9, 9, 2, 16, 16, (3, 2, 9, 9)),
    (4, 7, 9, 2, 8, 8, (1, 2, 7, 9)),
    (4, 7, 9, 2, 8, 8, (4, 1, 1, 9)),
    (1, 3, 2100, 1, 8, 8, (1, 1, 3, 2100)),
)


def _full_rows() -> list[OpCase]:
    rows = []
    for batch, queries, keys, heads, size, value, bias in SIZES:
        inputs = [
            normal(batch, queries, heads, size, seed="q"),
            normal(batch, keys, heads, size, seed="k"),
            normal(batch, keys, heads, value, seed="v"),
        ]
        if bias:
            inputs.append(normal(*bias, seed="b"))
        name = f"{batch}x{queries}x{keys}_{heads}x{size}x{value}_bias{bias}"
        rows.append(case("attention_full", name, inputs, _full(0.4), scale=0.4))
    # Keys that are not seen, in whole blocks and in parts, and scores of all sizes.
    masked = np.zeros((1, 1, 4, 2100), np.float32)
    masked[0, 0, 0, :1500] = masked[0, 0, 1, 600:] = masked[0, 0, 2, 1::2] = -np.inf
    parts = [normal(2, n, 2, 8, seed=i, scale=9.0) for i, n in enumerate((4, 2100, 2100))]
    rows.append(case("attention_full", "masked", [*parts, masked], _full(1.0), scale=1.0))
    # Queries that see nothing at all get 0, in one block of keys and in several.
    for keys in (9, 33, 2100):
        blind = np.zeros((1, 1, 4, keys), np.float32)
        blind[0, 0, 1] = blind[0, 0, 3] = blind[0, 0, 0, ::2] = -np.inf
        parts = [normal(2, n, 2, 8, seed=i) for i, n in enumerate((4, keys, keys))]
        rows.append(case("attention_full", f"blind{keys}", [*parts, blind], _full(1.0), scale=1.0))
    slots = [Input((B, S, 2, 8)), Input((B, 5, 2, 8)), Input((B, 5, 2, 8))]
    calls = [
        [normal(b, s, 2, 8), normal(b, 5, 2, 8), normal(b, 5, 2, 8, seed=1)]
        for b, s in ((1, 20), (3, 1), (2, 7))
    ]
    rows.append(case("attention_full", "symbolic", slots, _full(0.5), calls=calls, scale=0.5))
    return rows


def _packed_rows() -> list[OpCase]:
    rows = []
    for batch, tokens, heads, size, bias in (
        (1, 1, 1, 1, None),
        (2, 50, 3, 32, None),
        (1, 197, 2, 64, None),
        (4, 49, 3, 32, (2, 3, 49, 49)),
    ):
        inputs = [normal(batch, tokens, 3, heads, size)]
        if bias:
            inputs.append(normal(*bias, seed="b"))
        name = f"{batch}x{tokens}_{heads}x{size}"
        rows.append(case("attention_qkv", name, inputs, _packed(0.3), scale=0.3))
    return rows


def _windows(scale: float) -> Callable[..., Any]:
    def attend(t: Any, qkv: Any, *others: Any) -> Any:
        bias, rows = others[:2] if len(others) > 1 else (None, others[0])
        order = rows.flatten().long()
        windows = qkv.flatten(0, 1)[order].unflatten(0, rows.shape)
        if len(others) > 2:
            bias = bias[others[2].long()]
        out = _packed(scale)(t, windows, bias).flatten(0, 1)
        return t.empty_like(out).index_copy(0, order, out).unflatten(0, qkv.shape[:2])

    return attend


def _window_rows() -> list[OpCase]:
    """Tokens in any order, in windows of another number than x has entries."""
    rows = []
    for batch, tokens, windows, heads, size, kinds in (
        (1, 5, 1, 1, 4, 0),
        (1, 12, 4, 2, 8, 0),
        (2, 49, 2, 3, 32, 2),
        (1, 2 * 49, 2, 3, 20, 1),
        (3, 70, 6, 1, 64, 3),
    ):
        order = np.random.default_rng(tokens).permutation(batch * tokens).astype(np.int32)
        length = batch * tokens // windows
        bias = normal(kinds, heads, length, length, seed="b") if kinds else None
        inputs: list[Any] = [normal(batch, tokens, 3, heads, size), bias]
        inputs.append(order.reshape(windows, length))
        if kinds:
            inputs.append((np.arange(windows) * 7 % kinds).astype(np.int32))
        name = f"windows_{batch}x{tokens}_{windows}_{heads}x{size}_{kinds}"
        rows.append(case("attention_qkv", name, inputs, _windows(0.3), scale=0.3))
    return rows


def _coded(attrs: dict[str, Any], bias: bool, windows: bool) -> Callable[..., Any]:
    """In 32-bit floats, step by step: what counts is how each is rounded."""

    def attend(t: Any, x: Any, scales: Any, *others: Any) -> Any:
        scales = scales.float()
        added = others[0].float() if bias else None
        rows = others[-1] if windows else None
        order = None if rows is None else rows.flatten().long()
        parts = x if rows is None else x.flatten(0, 1)[order].unflatten(0, rows.shape)
        q, k, v = (p.transpose(1, 2).double() - 128 for p in parts.unbind(2))
        factor = scales[0] * scales[1] * np.float32(attrs["scale"])
        scores = (q @ k.transpose(2, 3)).float() * factor[:, None, None]
        if added is not None:
            scores = scores + added
        largest = scores.amax(-1, keepdim=True).clamp(min=-3e38)
        codes = ((scores - largest).double().exp().float() * 255).round().double()
        out = (codes @ v).float() * scales[2][:, None, None]
        out = (out * (1 / codes.sum(-1, keepdim=True).clamp(min=1).float())).transpose(1, 2)
        if order is not None:
            flat = out.flatten(0, 1)
            out = t.empty_like(flat).index_copy(0, order, flat).unflatten(0, x.shape[:2])
        if "out_scale" not in attrs:
            return out
        inverse = float(np.float32(1) / np.float32(attrs["out_scale"]))
        return ((out * inverse).round() + attrs["out_zero"]).clamp(0, 255).to(t.uint8)

    return attend


def _coded_rows() -> list[OpCase]:
    rows = []
    for batch, tokens, heads, size, windows in (
        (1, 1, 1, 4, 0),
        (2, 5, 2, 8, 0),
        (1, 197, 2, 64, 0),
        (4, 49, 3, 32, 4),
        (1, 66, 2, 20, 3),
    ):
        x = integers(batch, tokens, 3, heads, size, below=256, seed=tokens).astype(np.uint8)
        scales = uniform(3, heads, low=0.01, high=0.02)
        order = np.random.default_rng(1).permutation(batch * tokens).astype(np.int32)
        count, length = (windows, batch * tokens // windows) if windows else (batch, tokens)
        for kind, out in (("u8", {"out_scale": 0.009, "out_zero": 119}), ("f32", {})):
            bias = normal(1, heads, length, length, seed="b") if kind == "f32" else None
            if bias is not None and length > 3:  # some keys, and all keys of a query, are not seen
                bias[0, 0, 1, 2:] = bias[0, 0, 3] = -np.inf
            attrs: dict[str, Any] = {"scale": 0.2, **out}
            numbers = [order.reshape(count, length)] if windows else []
            inputs = [x, scales, bias, *numbers] if windows or bias is not None else [x, scales]
            oracle = _coded(attrs, bias is not None, bool(windows))
            name = f"{kind}_{batch}x{tokens}_{heads}x{size}_{windows}"
            # A weight on the edge between two codes may fall to either side.
            rows.append(case("qattention_qkv", name, inputs, oracle, tolerance=1e-3, **attrs))
    return rows


ROWS = [*_full_rows(), *_packed_rows(), *_window_rows(), *_coded_rows()]
