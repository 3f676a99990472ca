"""Qwen3: queries and keys are normed head by head, and heads have a size of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import Value
from satchel.models.base import Decoder, Step, cached_attention, gated_mlp, linear, rms_norm, rotate
from satchel.models.config import ConfigReader
from satchel.models.qwen2 import qwen_windows


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read(fields)
        fields.finish()

    def read(self, fields: ConfigReader) -> None:
        """Every field of the configuration; the mixture of experts reads more."""
        self.read_sizes(fields, context=32768, head_dim=128)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.activation = fields.activation("hidden_act", "silu")
        self.rope = self.read_rope(fields)
        self.windows = qwen_windows(fields, self.layers)
        fields.only("mlp_bias", False)

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps)
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps)
        return b.node("add", x, self.feed_forward(step, h, index, f"{name}.mlp"))

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        return gated_mlp(step, x, name, self.ffn, self.activation)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, self.attention_bias)
        q = rotate(step, rms_norm(step, q, f"{name}.q_norm", self.eps), self.rope)
        k = rotate(step, rms_norm(step, k, f"{name}.k_norm", self.eps), self.rope)
        scale, window = self.head_dim**-0.5, self.windows[index]
        out = cached_attention(step, q, k, v, index, scale, window)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)
