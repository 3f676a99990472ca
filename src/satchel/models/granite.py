"""Granite 3: Llama with a multiplier at the embedding, the scores, the residuals and the logits."""

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
        self.read(fields)
        fields.finish()

    def read(self, fields: ConfigReader) -> None:
        """Every field of the configuration; the mixture of experts reads more."""
        self.read_sizes(fields)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.mlp_bias = fields.boolean("mlp_bias", False)
        self.activation = fields.activation("hidden_act", "silu")
        self.embedding_multiplier = fields.number("embedding_multiplier", 1.0)
        self.attention_multiplier = fields.number("attention_multiplier", 1.0)
        self.residual_multiplier = fields.number("residual_multiplier", 1.0)
        self.logits_divisor = fields.above_zero("logits_scaling", 1.0)
        self.rope = self.read_rope(fields)

    def embed(self, step: Step, tokens: Value) -> Value:
        return scaled(step, super().embed(step, tokens), self.embedding_multiplier)

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps)
        h = self.attention(step, h, index, f"{name}.self_attn")
        x = b.add(x, scaled(step, h, self.residual_multiplier))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps)
        h = self.feed_forward(step, h, index, f"{name}.mlp")
        return b.node("add", x, scaled(step, h, self.residual_multiplier))

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        return gated_mlp(step, x, name, self.ffn, self.activation, self.mlp_bias)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, self.attention_bias)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        # The multiplier is the scale of the scores itself, in place of 1 / sqrt(head size).
        out = cached_attention(step, q, k, v, index, scale=self.attention_multiplier)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)

    def logits(self, step: Step, x: Value) -> Value:
        return scaled(step, super().logits(step, x), 1 / self.logits_divisor)
