"""What every decoder has in common, and the blocks its file is put together from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Dim, DType, Graph, RowSource, Sym, Value
from satchel.graph.passes import optimize
from satchel.models.rope import Rope


@dataclass(frozen=True)
class Step:
    """What the layers of one method share: where the tokens stand, and the caches' form."""

    builder: GraphBuilder
    start: Value  # i32[1]: the position of the first token
    positions: Value  # i32[S]
    context: int
    cache_dtype: DType


class Decoder(ABC):
    """A decoder-only language model; its file in ``models/`` fills in the layers.

    A subclass reads its fields from a ConfigReader in ``__init__`` and sets these numbers.
    """

    vocab_size: int
    hidden: int
    layers: int
    context: int  # the longest that the model was made for
    tied: bool

    @property
    def unused_tensors(self) -> tuple[str, ...]:
        """Patterns of tensors that a checkpoint may have and that nothing reads."""
        return ("*.rotary_emb.inv_freq", *(["lm_head.weight"] if self.tied else []))

    @abstractmethod
    def embed(self, step: Step, tokens: Value) -> Value:
        """[S] -> [S, hidden]"""

    @abstractmethod
    def layer(self, step: Step, x: Value, index: int) -> Value:
        """[S, hidden] -> [S, hidden]"""

    @abstractmethod
    def logits(self, step: Step, x: Value) -> Value:
        """[L, hidden] -> [L, vocab]"""

    def method(
        self, name: str, tokens: Dim, context: int, cache_dtype: DType = DType.f32
    ) -> Graph:
        """The graph of one entry point: ``tokens`` at a time over a cache of ``context``.

        A method for more than one token has the input ``rows``: for which of its tokens
        logits are wanted, since generation needs only the last one's.
        """
        b = GraphBuilder(name)
        ids = b.input("tokens", (tokens,), DType.i32)
        start = b.input("position", (1,), DType.i32)
        step = Step(b, start, b.positions(start, ids), context, cache_dtype)
        x = self.embed(step, ids)
        for index in range(self.layers):
            x = self.layer(step, x, index)
        if tokens != 1:
            most = tokens.maximum if isinstance(tokens, Sym) else tokens
            x = b.take_rows(x, b.input("rows", (Sym("L", most),), DType.i32))
        b.output(self.logits(step, x), "logits")
        return optimize(b.finish())


def linear(
    step: Step, x: Value, name: str, out: int, bias: bool = False, role: str = "linear"
) -> Value:
    width = x.shape[-1]
    assert isinstance(width, int)
    b = step.builder
    weight = b.weight(f"{name}.weight", (out, width), role)
    return step.builder.node(
        "linear", x, weight, *([b.weight(f"{name}.bias", (out,), "vector")] if bias else [])
    )


def rms_norm(step: Step, x: Value, name: str, eps: float, add: float = 0.0) -> Value:
    """``add`` is 1 for models that store the weight as its difference from 1."""
    width = x.shape[-1]
    assert isinstance(width, int)
    key = f"{name}.weight"
    weight = step.builder.weight(key, (width,), "vector", RowSource(key, add=add))
    return step.builder.node("rms_norm", x, weight, eps=eps)


def rotate(step: Step, x: Value, rope: Rope) -> Value:
    b = step.builder
    frequencies = b.constant("rope.inverse_frequencies", rope.inverse_frequencies)
    table = b.rope_table(step.positions, frequencies, scale=rope.scale)
    return b.node("rope", x, table)


def cached_attention(
    step: Step,
    q: Value,
    k: Value,
    v: Value,
    index: int,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> Value:
    """q [S, H, D], k and v [S, KV, D] -> [S, H * D]; k and v go into layer ``index``'s cache."""
    b = step.builder
    _, kv_heads, dim = k.shape
    assert isinstance(kv_heads, int) and isinstance(dim, int)
    shape = (kv_heads, step.context, dim)
    keys = b.cache_write(b.state(f"cache.{index}.k", shape, step.cache_dtype), k, step.start)
    values = b.cache_write(b.state(f"cache.{index}.v", shape, step.cache_dtype), v, step.start)
    out = b.attention(q, keys, values, step.start, scale=scale, window=window, softcap=softcap)
    heads = q.shape[1]
    assert isinstance(heads, int)
    return split(step, out, heads * dim)


def split(step: Step, x: Value, *shape: int) -> Value:
    """x with everything after its first dimension in another shape."""
    return step.builder.node("reshape", x, shape=(0, *shape))
