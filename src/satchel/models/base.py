"""What every decoder has in common, and the blocks its file is put together from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from satchel.errors import ConfigError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Dim, DType, Graph, RowSource, Sym, TensorType, Value, largest
from satchel.graph.ops.attention import cache_row
from satchel.graph.passes import optimize
from satchel.models.config import ConfigReader
from satchel.models.rope import Rope, read_rope, rope_of


@dataclass(frozen=True)
class Step:
    """What the layers of one method share: where the tokens stand, and the caches' form."""

    builder: GraphBuilder
    sequence: Value  # i32[S]: which conversation each token belongs to
    position: Value  # i32[S]: and where it stands there
    context: int
    cache_dtype: DType
    parents: Value | None = None  # i32[S], if the tokens are trees and not lines

    @classmethod
    def begin(
        cls,
        builder: GraphBuilder,
        tokens: Dim,
        context: int,
        cache_dtype: DType,
        tree: bool = False,
    ) -> Step:
        """The inputs that say where the tokens of a step stand."""
        names = ["sequence", "position", *(["parents"] if tree else [])]
        sequence, position, *parents = (builder.input(name, (tokens,), DType.i32) for name in names)
        return cls(builder, sequence, position, context, cache_dtype, *parents)

    @property
    def where(self) -> tuple[Value, ...]:
        """What the ops of the caches want to know of the tokens."""
        return self.sequence, self.position, *(() if self.parents is None else (self.parents,))


class Decoder(ABC):
    """A decoder-only language model; its file in ``models/`` fills in the layers.

    A subclass reads its fields from a ConfigReader in ``__init__`` and sets these numbers.
    """

    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    eps: float  # of the norms
    context: int  # the longest that the model was made for
    plain_context: int = 0  # beyond it, rotations depend on the program's context; 0: never
    tied: bool  # the head's weight is the embedding's

    def read_sizes(
        self,
        fields: ConfigReader,
        *,
        eps: float = 1e-6,
        eps_field: str = "rms_norm_eps",
        context: int = 2048,
        tied: bool = False,
        head_dim: int = 0,
    ) -> None:
        """Read the fields that most families write alike; what is given here are defaults."""
        self.vocab_size = fields.positive("vocab_size")
        self.hidden = fields.positive("hidden_size")
        self.layers = fields.positive("num_hidden_layers")
        self.heads = fields.positive("num_attention_heads")
        self.kv_heads = fields.positive("num_key_value_heads", self.heads)
        self.head_dim = fields.positive("head_dim", head_dim or self.hidden // self.heads)
        self.ffn = fields.positive("intermediate_size")
        self.eps = fields.number(eps_field, eps)
        self.context = fields.positive("max_position_embeddings", context)
        self.tied = fields.boolean("tie_word_embeddings", tied)
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"{self.heads} attention heads cannot share {self.kv_heads} key-value heads"
            )

    def read_rope(self, fields: ConfigReader, **how: Any) -> Rope:
        """The rotary embedding; a scaling that says how far it reaches makes the context longer."""
        rope = read_rope(fields, self.head_dim, context=self.context, **how)
        self.context = max(self.context, rope.extended)
        self.plain_context = rope.switch
        return rope

    def read_two_ropes(
        self, fields: ConfigReader, theta: float, local_theta: float
    ) -> tuple[Rope, Rope]:
        """Those of layers that see all tokens and of those that slide, with default thetas.

        Any scaling is the full layers' alone, unless both kinds are written out.
        """
        scaling = fields.optional("rope_scaling") or {}
        nested = dict(fields.optional("rope_parameters") or {})
        full = {**(nested.pop("full_attention", None) or {}), **scaling}
        sliding = nested.pop("sliding_attention", None) or {}
        if nested:
            raise ConfigError(f"the field {min(nested)!r} of 'rope_parameters' is not understood")
        ropes = (
            rope_of(full, self.head_dim, theta, context=self.context),
            rope_of(sliding, self.head_dim, local_theta, context=self.context),
        )
        self.context = max(self.context, ropes[0].extended)
        self.plain_context = ropes[0].switch
        return ropes

    def cache_bytes(self, dtype: DType) -> int:
        """What one token takes in the caches of all layers."""
        row = cache_row(dtype, self.head_dim)
        assert isinstance(row, int)
        return 2 * self.layers * self.kv_heads * row * dtype.size

    @property
    def unused_tensors(self) -> tuple[str, ...]:
        """Patterns of tensors that a checkpoint may have and that nothing reads."""
        return ("*.rotary_emb.inv_freq", *(["lm_head.weight"] if self.tied else []))

    def embed(self, step: Step, tokens: Value) -> Value:
        """[S] -> [S, hidden]"""
        return embedding(step, tokens, "model.embed_tokens", self.vocab_size, self.hidden)

    @abstractmethod
    def layer(self, step: Step, x: Value, index: int) -> Value:
        """[S, hidden] -> [S, hidden]"""

    def logits(self, step: Step, x: Value) -> Value:
        """[L, hidden] -> [L, vocab]"""
        return self.head(step, self.last_norm(step, x))

    def last_norm(self, step: Step, x: Value) -> Value:
        """[L, hidden] -> [L, hidden]: behind the last layer, before the head."""
        return self.norm(step, x, "model.norm")

    def norm(self, step: Step, x: Value, name: str) -> Value:
        """[N, hidden] -> [N, hidden]: what most families have between their parts."""
        return rms_norm(step, x, name, self.eps)

    def qkv(
        self,
        step: Step,
        x: Value,
        name: str,
        bias: bool = False,
        rows: tuple[RowSource | None, ...] = (None, None, None),
    ) -> tuple[Value, ...]:
        """q [S, H, D], k and v [S, KV, D]; ``rows``, if theirs do not lie in three tensors."""
        parts = []
        counts = (self.heads, self.kv_heads, self.kv_heads)
        for letter, count, source in zip("qkv", counts, rows, strict=True):
            out = count * self.head_dim
            flat = linear(step, x, f"{name}.{letter}_proj", out, bias, rows=source)
            parts.append(split(step, flat, count, self.head_dim))
        return tuple(parts)

    def head(self, step: Step, x: Value) -> Value:
        """The last linear layer, which may be the embedding."""
        name, role = ("model.embed_tokens", "embedding") if self.tied else ("lm_head", "head")
        return linear(step, x, name, self.vocab_size, role=role)

    def method(
        self,
        name: str,
        tokens: Dim,
        context: int,
        cache_dtype: DType = DType.f32,
        tree: bool = False,
        embedded: bool = False,
        hidden: bool = False,
    ) -> Graph:
        """The graph of one entry point: ``tokens`` at a time over a cache of ``context``.

        Each token comes with its ``sequence`` and its ``position`` there, so that a step may
        carry several conversations. A method for more than one token has the input ``rows``: for
        which of its tokens logits are wanted, since generation needs only the last one's. With
        ``tree`` the tokens are continuations side by side: ``parents`` says behind which of them
        each one stands. With ``embedded`` it takes what :meth:`embed_method` gives, or what stands
        for an image or a sound there, in place of tokens. With ``hidden`` it gives the last hidden
        states of the ``rows`` in place of logits.
        """
        b = GraphBuilder(name)
        if embedded:
            x = b.input("embedded", (tokens, self.hidden))
            step = Step.begin(b, tokens, context, cache_dtype, tree)
        else:
            ids = b.input("tokens", (tokens,), DType.i32)
            step = Step.begin(b, tokens, context, cache_dtype, tree)
            x = self.embed(step, ids)
        for index in range(self.layers):
            x = self.layer(step, x, index)
        if tokens != 1:
            most = tokens.maximum if isinstance(tokens, Sym) else tokens
            x = b.take_rows(x, b.input("rows", (Sym("L", most),), DType.i32))
        if hidden:
            b.output(self.last_norm(step, x), "hidden")
        else:
            b.output(self.logits(step, x), "logits")
        _name_sequence_last(b.graph)
        return optimize(b.finish())

    def embed_method(self, name: str, tokens: Dim) -> Graph:
        """The graph that gives what the layers see of tokens, [S, hidden]."""
        b = GraphBuilder(name)
        ids = b.input("tokens", (tokens,), DType.i32)
        # No family's embedding looks at where a token stands.
        step = Step(b, ids, ids, 1, DType.f32)
        b.output(self.embed(step, ids), "embedded")
        return optimize(b.finish())


def accept_method(name: str, rows: Sym, caches: Mapping[str, TensorType]) -> Graph:
    """Moves the rows of the tokens that were accepted, of a tree of guesses, into a line."""
    b = GraphBuilder(name)
    kept = b.input("rows", (rows,), DType.i32)
    where = [b.input(name, (1,), DType.i32) for name in ("sequence", "position")]
    for cache, type in caches.items():
        heads, context, row = largest(type.shape)
        b.cache_move(b.cache(cache, (heads, context, row), type.dtype), kept, *where)
    _name_sequence_last(b.graph)
    return b.finish()


def _name_sequence_last(graph: Graph) -> None:
    """Callers with one conversation leave the sequence out."""
    graph.inputs.sort(key=lambda value: value.name == "sequence")


def embedding(step: Step, tokens: Value, name: str, vocab_size: int, hidden: int) -> Value:
    table = step.builder.weight(f"{name}.weight", (vocab_size, hidden), "embedding")
    return step.builder.node("embedding", tokens, table)


def linear(
    step: Step,
    x: Value,
    name: str,
    out: int,
    bias: bool = False,
    role: str = "linear",
    rows: RowSource | None = None,
) -> Value:
    """``rows``, if the layer's rows lie elsewhere: its tensor lacks the .weight or .bias."""
    width = _last(x)
    rows = rows or RowSource(name)

    def stored(part: str, shape: tuple[int, ...], role: str) -> Value:
        source = replace(rows, tensor=f"{rows.tensor}.{part}")
        return step.builder.weight(f"{name}.{part}", shape, role, source)

    inputs = [x, stored("weight", (out, width), role)]
    if bias:
        inputs.append(stored("bias", (out,), "vector"))
    return step.builder.node("linear", *inputs)


def rms_norm(step: Step, x: Value, name: str, eps: float, add: float = 0.0) -> Value:
    """``add`` is 1 for models that store the weight as its difference from 1."""
    key = f"{name}.weight"
    weight = step.builder.weight(key, (_last(x),), "vector", RowSource(key, add=add))
    return step.builder.node("rms_norm", x, weight, eps=eps)


def layer_norm(
    step: Step, x: Value, name: str, eps: float, add: float = 0.0, bias: bool = True
) -> Value:
    """``add`` is 1 for models that store the weight as its difference from 1."""
    b, shape, key = step.builder, (_last(x),), f"{name}.weight"
    inputs = [x, b.weight(key, shape, "vector", RowSource(key, add=add))]
    if bias:
        inputs.append(b.weight(f"{name}.bias", shape, "vector"))
    return b.node("layer_norm", *inputs, eps=eps)


def activated(step: Step, x: Value, activation: str) -> Value:
    """An activation as ConfigReader.activation names it: an op, or the square of relu."""
    if activation != "relu2":
        return step.builder.node(activation, x)
    positive = step.builder.relu(x)
    return step.builder.node("mul", positive, positive)


def scaled(step: Step, x: Value, scale: float) -> Value:
    return x if scale == 1 else step.builder.node("affine", x, scale=scale)


def softcapped(step: Step, x: Value, cap: float) -> Value:
    """cap * tanh(x / cap); a cap of 0 is none."""
    if not cap:
        return x
    return scaled(step, step.builder.node("tanh", scaled(step, x, 1 / cap)), cap)


def rotate(step: Step, x: Value, rope: Rope) -> Value:
    """x [S, H, D] with the first values of each head rotated by the tokens' positions."""
    b = step.builder
    frequencies = b.constant("rope.inverse_frequencies", rope.frequencies(step.context))
    table = b.rope_table(step.position, frequencies, scale=rope.scale)
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
    row = cache_row(step.cache_dtype, dim)
    assert isinstance(row, int)
    shape = (kv_heads, step.context, row)
    keys, values = (
        b.cache_write(b.cache(f"cache.{index}.{name}", shape, step.cache_dtype), x, *step.where)
        for name, x in (("k", k), ("v", v))
    )
    window = window if window < step.context else 0  # it would never leave a token out
    out = b.attention(q, keys, values, *step.where, scale=scale, window=window, softcap=softcap)
    heads = q.shape[1]
    assert isinstance(heads, int)
    return split(step, out, heads * dim)


def gated_mlp(
    step: Step,
    x: Value,
    name: str,
    ffn: int,
    activation: str = "silu",
    bias: bool = False,
    fused: bool = False,
) -> Value:
    """down(activation(gate(x)) * up(x)); ``fused``: gate and up are one tensor, gate first."""
    together = f"{name}.gate_up_proj"
    gate_rows = RowSource(together, ((0, ffn),)) if fused else None
    up_rows = RowSource(together, ((ffn, 2 * ffn),)) if fused else None
    gate = linear(step, x, f"{name}.gate_proj", ffn, bias, rows=gate_rows)
    up = linear(step, x, f"{name}.up_proj", ffn, bias, rows=up_rows)
    inner = step.builder.mul(activated(step, gate, activation), up)
    return linear(step, inner, f"{name}.down_proj", _last(x), bias)


def plain_mlp(
    step: Step, x: Value, names: tuple[str, str], ffn: int, activation: str, bias: bool = True
) -> Value:
    """second(activation(first(x)))"""
    first, second = names
    inner = activated(step, linear(step, x, first, ffn, bias), activation)
    return linear(step, inner, second, _last(x), bias)


def split(step: Step, x: Value, *shape: int) -> Value:
    """x with everything after its first dimension in another shape."""
    return step.builder.node("reshape", x, shape=(0, *shape))


def _last(x: Value) -> int:
    width = x.shape[-1]
    assert isinstance(width, int)
    return width
