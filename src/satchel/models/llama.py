"""Llama: Llama 3.2, SmolLM2, the stories models, and whatever else says "llama"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import Value
from satchel.models.base import Decoder, Step, cached_attention, linear, rms_norm, rotate, split
from satchel.models.config import ConfigReader
from satchel.models.rope import read_rope


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.vocab_size = fields.positive("vocab_size")
        self.hidden = fields.positive("hidden_size")
        self.layers = fields.positive("num_hidden_layers")
        self.heads = fields.positive("num_attention_heads")
        self.kv_heads = fields.positive("num_key_value_heads", self.heads)
        self.head_dim = fields.positive("head_dim", self.hidden // self.heads)
        self.ffn = fields.positive("intermediate_size")
        self.eps = fields.number("rms_norm_eps", 1e-6)
        self.context = fields.positive("max_position_embeddings", 2048)
        self.tied = fields.boolean("tie_word_embeddings", False)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.mlp_bias = fields.boolean("mlp_bias", False)
        self.rope = read_rope(fields, self.head_dim)
        fields.only("hidden_act", "silu")
        fields.finish()

    def embed(self, step: Step, tokens: Value) -> Value:
        table = step.builder.weight(
            "model.embed_tokens.weight", (self.vocab_size, self.hidden), "embedding"
        )
        return step.builder.node("embedding", tokens, table)

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, prefix = step.builder, f"model.layers.{index}"
        x = b.add(x, self.attention(step, x, index, prefix))
        return b.node("add", x, self.mlp(step, x, prefix))

    def attention(self, step: Step, x: Value, index: int, prefix: str) -> Value:
        x = rms_norm(step, x, f"{prefix}.input_layernorm", self.eps)
        name, bias, dim = f"{prefix}.self_attn", self.attention_bias, self.head_dim
        q = linear(step, x, f"{name}.q_proj", self.heads * dim, bias)
        k = linear(step, x, f"{name}.k_proj", self.kv_heads * dim, bias)
        v = linear(step, x, f"{name}.v_proj", self.kv_heads * dim, bias)
        q = rotate(step, split(step, q, self.heads, dim), self.rope)
        k = rotate(step, split(step, k, self.kv_heads, dim), self.rope)
        v = split(step, v, self.kv_heads, dim)
        out = cached_attention(step, q, k, v, index, scale=dim**-0.5)
        return linear(step, out, f"{name}.o_proj", self.hidden, bias)

    def mlp(self, step: Step, x: Value, prefix: str) -> Value:
        b, name = step.builder, f"{prefix}.mlp"
        x = rms_norm(step, x, f"{prefix}.post_attention_layernorm", self.eps)
        gate = b.silu(linear(step, x, f"{name}.gate_proj", self.ffn, self.mlp_bias))
        up = linear(step, x, f"{name}.up_proj", self.ffn, self.mlp_bias)
        return linear(step, b.mul(gate, up), f"{name}.down_proj", self.hidden, self.mlp_bias)

    def logits(self, step: Step, x: Value) -> Value:
        x = rms_norm(step, x, "model.norm", self.eps)
        name = "model.embed_tokens" if self.tied else "lm_head"
        return linear(step, x, name, self.vocab_size, role="embedding" if self.tied else "head")
