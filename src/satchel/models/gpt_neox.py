"""GPT-NeoX, Pythia and Dolly: LayerNorms, a plain MLP, and each head's q, k and v in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.errors import ConfigError
from satchel.graph.ir import RowSource, Value
from satchel.models.base import (
    Decoder,
    Step,
    cached_attention,
    embedding,
    layer_norm,
    linear,
    plain_mlp,
    rotate,
)
from satchel.models.config import ConfigReader


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, eps=1e-5, eps_field="layer_norm_eps")
        self.kv_heads = self.heads
        self.attention_bias = fields.boolean("attention_bias", True)
        self.parallel = fields.boolean("use_parallel_residual", True)
        self.activation = fields.activation("hidden_act", "gelu")
        theta = fields.number("rotary_emb_base", 10000.0)
        partial = fields.number("rotary_pct", 0.25)
        self.rope = self.read_rope(fields, default_theta=theta, default_partial=partial)
        if self.heads * self.head_dim != self.hidden:
            raise ConfigError(f"{self.heads} heads do not divide 'hidden_size' {self.hidden}")
        fields.finish()

    @property
    def unused_tensors(self) -> tuple[str, ...]:
        return (
            *super().unused_tensors,
            *(["embed_out.weight"] if self.tied else []),
            *(f"*.attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq")),
        )

    def embed(self, step: Step, tokens: Value) -> Value:
        return embedding(step, tokens, "gpt_neox.embed_in", self.vocab_size, self.hidden)

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"gpt_neox.layers.{index}"
        h = layer_norm(step, x, f"{name}.input_layernorm", self.eps)
        attended = b.add(x, self.attention(step, h, index, f"{name}.attention"))
        h = x if self.parallel else attended
        h = layer_norm(step, h, f"{name}.post_attention_layernorm", self.eps)
        names = f"{name}.mlp.dense_h_to_4h", f"{name}.mlp.dense_4h_to_h"
        return b.node("add", attended, plain_mlp(step, h, names, self.ffn, self.activation))

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        tensor, dim = f"{name}.query_key_value", self.head_dim
        rows = (
            RowSource(
                tensor, tuple((at, at + dim) for at in range(first, 3 * self.hidden, 3 * dim))
            )
            for first in (0, dim, 2 * dim)
        )
        q, k, v = self.qkv(step, x, name, self.attention_bias, tuple(rows))
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=dim**-0.5)
        return linear(step, out, f"{name}.dense", self.hidden, self.attention_bias)

    def last_norm(self, step: Step, x: Value) -> Value:
        return layer_norm(step, x, "gpt_neox.final_layer_norm", self.eps)

    def head(self, step: Step, x: Value) -> Value:
        name, role = ("gpt_neox.embed_in", "embedding") if self.tied else ("embed_out", "head")
        return linear(step, x, name, self.vocab_size, role=role)
