"""Gemma: scaled embeddings, norms stored as their difference from 1, gelu in the MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import Value
from satchel.models.base import (
    Decoder,
    Step,
    cached_attention,
    gated_mlp,
    linear,
    rms_norm,
    rotate,
    scaled,
)
from satchel.models.config import ConfigReader


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, context=8192, tied=True, head_dim=256)
        self.attention_bias = fields.boolean("attention_bias", False)
        # The released configurations say "gelu" in the one field and nothing or the tanh form in
        # the other, and all mean the tanh form.
        fields.only("hidden_act", "gelu_pytorch_tanh", "gelu", "gelu_new")
        fields.only("hidden_activation", "gelu_pytorch_tanh", "gelu_new")
        self.rope = self.read_rope(fields)
        fields.only("mlp_bias", False)
        fields.only("use_bidirectional_attention", False)
        fields.finish()

    def embed(self, step: Step, tokens: Value) -> Value:
        return scaled(step, super().embed(step, tokens), self.hidden**0.5)

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps, add=1)
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps, add=1)
        return b.node("add", x, gated_mlp(step, h, f"{name}.mlp", self.ffn, "gelu_tanh"))

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, self.attention_bias)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)

    def last_norm(self, step: Step, x: Value) -> Value:
        return rms_norm(step, x, "model.norm", self.eps, add=1)
