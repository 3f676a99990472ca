"""What kernels do between the parts that XNNPACK runs: looking up, angles, caches, attention."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from satchel.backends.executorch.method import BOOL, INT8, LONG, UINT8, MethodWriter
from satchel.backends.weight_rows import (
    byte_rows,
    float_rows,
    nibble_rows,
    plain_bytes,
    scale_rows,
)
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Dim, Node, Sym, Value, attr_float, attr_int, largest

_FIRST_BITS, _LAST_BITS = {4: (-8, 7), 8: (-128, 127)}, 1 << 62


class Steps:
    """The tokens of a call and where they stand, and what is made of them."""

    def __init__(
        self, method: MethodWriter, tokens: Dim, encodings: Mapping[str, Encoding], context: int
    ) -> None:
        self.method, self.count, self.context = method, tokens, context
        self.encodings = encodings
        m = method
        given = m.input((1, tokens), LONG)
        self.start = m.input((1,), LONG)
        self.tokens = m.made("aten::view_copy.out", (tokens,), given, m.wholes([-1]), kind=LONG)
        self.first = m.unknown_whole()
        m.kernel("aten::_local_scalar_dense", self.start, self.first)
        self.positions = self._positions()
        self.caches: dict[str, int] = {}
        self._masks: dict[int, int] = {}
        self._written = m.tensor((1,))  # what update_cache gives, and nobody reads

    def _positions(self) -> int:
        """One after the other from where the first token stands."""
        m, shape = self.method, (self.count,)
        ones = m.made("aten::full_like.out", shape, self.tokens, m.whole(1), m.none, kind=LONG)
        counted = m.made("aten::cumsum.out", shape, ones, m.whole(0), m.none, kind=LONG)
        behind = m.made("aten::add.out", shape, counted, self.start, m.whole(1), kind=LONG)
        return m.made("aten::add.Scalar_out", shape, behind, m.whole(-1), m.whole(1), kind=LONG)

    def embed(self, node: Node) -> int:
        """The rows of a table, whatever its numbers are stored as."""
        m, table = self.method, node.inputs[1]
        assert table is not None and table.weight is not None
        name, (rows, cols) = table.weight.name, table.weight.shape
        encoding, out = self.encodings[name], node.outputs[0].shape
        if not encoding.is_quantized:
            data = m.constant(f"{name}#table", (rows, cols), float_rows(name, (rows, cols)))
            more = (m.whole(-1), m.flag(False), m.flag(False))
            return m.made("aten::embedding.out", out, data, self.tokens, *more)
        groups = cols // encoding.group
        scales = m.constant(
            f"{name}#table scales",
            (rows,) if groups == 1 else (rows, groups),
            scale_rows(name, (rows, cols), encoding.group, "float32"),
        )
        if encoding.kind == "matrix_q4":
            nibbles = nibble_rows(name, (rows, cols), first_is_high=True)
            codes = m.constant(f"{name}#table", (rows, cols // 2), nibbles, UINT8)
            kernel, bits = "quantized_decomposed::embedding_4bit.out", 4
        else:
            codes = m.constant(f"{name}#table", (rows, cols), byte_rows(name, (rows, cols)), INT8)
            kernel, bits = "quantized_decomposed::embedding_byte.out", 8
        limits = [m.whole(limit) for limit in _FIRST_BITS[bits]]
        return m.made(kernel, out, codes, scales, m.none, *limits, self.tokens)

    def angles(self, node: Node) -> tuple[int, int]:
        """Cosines and sines, each [tokens, 1, half]."""
        m, frequencies = self.method, node.inputs[1]
        assert frequencies is not None and frequencies.constant is not None
        half, scale = frequencies.constant.size, attr_float(node.attrs, "scale", 1.0)
        data = plain_bytes(frequencies.constant.astype(np.float32))
        known = m.constant(f"{frequencies.name}#kernels", (half,), data)
        no = (m.flag(False), m.none)
        floats = m.made("aten::_to_copy.out", (self.count,), self.positions, *no)
        column = m.made("aten::view_copy.out", (self.count, 1, 1), floats, m.wholes([-1, 1, 1]))
        shape = (self.count, 1, half)
        angle = m.made("aten::mul.out", shape, column, known)
        turns = [m.made(f"aten::{name}.out", shape, angle) for name in ("cos", "sin")]
        if scale != 1:
            factor = m.real(scale)
            turns = [m.made("aten::mul.Scalar_out", shape, one, factor) for one in turns]
        return turns[0], turns[1]

    def write(self, node: Node, new: int) -> None:
        """Put keys or values [1, tokens, heads, size] where their tokens stand."""
        state = node.outputs[0].state
        assert state is not None and node.inputs[1] is not None
        if state not in self.caches:
            _, heads, size = largest(node.inputs[1].shape)
            self.caches[state] = self.method.state((1, self.context, heads, size))
        self.method.kernel(
            "llama::update_cache.out", new, self.caches[state], self.first, self._written
        )

    def attend(self, node: Node, queries: int) -> int:
        """Attention of [1, tokens, heads, size] over the caches."""
        m, (keys, values) = self.method, node.inputs[1:3]
        assert keys is not None and values is not None and keys.state and values.state
        k, v = self.caches[keys.state], self.caches[values.state]
        shape = (1, *node.outputs[0].shape)
        window = attr_int(node.attrs, "window", 0)
        if attr_float(node.attrs, "softcap", 0.0):
            return self._written_out(node, queries, k, v)
        mask = self._mask(window) if window else m.none
        return m.made(
            "llama::custom_sdpa.out",
            shape,
            queries,
            k,
            v,
            self.first,
            mask,
            m.real(0.0),
            m.flag(not window),
            m.real(attr_float(node.attrs, "scale")),
        )

    def _mask(self, window: int) -> int:
        """[tokens, context]: nothing for what a token sees, and minus infinity for the rest."""
        if window not in self._masks:
            m, shape = self.method, (self.count, self.context)
            rows = m.made(
                "aten::view_copy.out", (self.count, 1), self.positions, m.wholes([-1, 1]), kind=LONG
            )
            places = np.arange(self.context, dtype=np.int64)
            slots = m.constant("slots", (self.context,), plain_bytes(places), LONG)
            back = m.made("aten::sub.out", shape, rows, slots, m.whole(1), kind=LONG)
            seen = m.made("aten::ge.Scalar_out", shape, back, m.whole(0), kind=BOOL)
            if window:
                near = m.made("aten::lt.Scalar_out", shape, back, m.whole(window), kind=BOOL)
                seen = m.made("aten::logical_and.out", shape, seen, near, kind=BOOL)
            zero, never = (
                m.constant(f"number {value}", (1,), plain_bytes(np.array([value], np.float32)))
                for value in (0.0, -np.inf)
            )
            self._masks[window] = m.made("aten::where.self_out", shape, seen, zero, never)
        return self._masks[window]

    def _written_out(self, node: Node, queries: int, k: int, v: int) -> int:
        """Attention whose scores are capped, which no kernel of ExecuTorch's does by itself."""
        m, count, slots = self.method, self.count, self.context
        assert node.inputs[1] is not None
        _, heads, size = largest(node.outputs[0].shape)
        kv = largest(node.inputs[1].shape)[0]
        share, cap = heads // kv, attr_float(node.attrs, "softcap")
        rows = (
            Sym(f"{share}{count.name}", share * count.maximum)
            if isinstance(count, Sym)
            else (share * count)
        )

        def view(x: int, shape: tuple[Dim, ...]) -> int:
            sizes = m.wholes([-1 if isinstance(d, Sym) else d for d in shape])
            return m.made("aten::view_copy.out", shape, x, sizes)

        def turn(x: int, shape: tuple[Dim, ...], perm: list[int]) -> int:
            return m.made("aten::permute_copy.out", shape, x, m.wholes(perm))

        q = m.made(
            "aten::mul.Scalar_out",
            (1, count, heads, size),
            queries,
            m.real(attr_float(node.attrs, "scale") / cap),
        )
        q = turn(view(q, (count, kv, share, size)), (kv, share, count, size), [1, 2, 0, 3])
        q = view(q, (kv, rows, size))
        k = turn(view(k, (slots, kv, size)), (kv, size, slots), [1, 2, 0])
        v = turn(view(v, (slots, kv, size)), (kv, slots, size), [1, 0, 2])
        scores = m.made("aten::bmm.out", (kv, rows, slots), q, k)
        scores = m.made("aten::tanh.out", (kv, rows, slots), scores)
        scores = m.made("aten::mul.Scalar_out", (kv, rows, slots), scores, m.real(cap))
        whole = (kv, share, count, slots)
        window = attr_int(node.attrs, "window", 0)
        masked = m.made("aten::add.out", whole, view(scores, whole), self._mask(window), m.whole(1))
        part = m.made("aten::_softmax.out", whole, masked, m.whole(-1), m.flag(False))
        mixed = m.made("aten::bmm.out", (kv, rows, size), view(part, (kv, rows, slots)), v)
        mixed = view(mixed, (kv, share, count, size))
        return view(turn(mixed, (count, kv, share, size), [2, 0, 1, 3]), (1, count, heads, size))

    def last_row(self, x: int, value: Value) -> int:
        """The last of the rows [tokens, …]."""
        m, shape = self.method, (1, *value.shape[1:])
        ends = (m.whole(0), m.whole(-1), m.whole(_LAST_BITS), m.whole(1))
        return m.made("aten::slice_copy.Tensor_out", shape, x, *ends)
