"""Llama: Llama 3.2, SmolLM2, the stories models, and whatever else says "llama"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from satchel.graph.ir import RowSource, Value
from satchel.models.base import Decoder, Step, cached_attention, gated_mlp, linear, rotate
from satchel.models.config import ConfigReader


class Model(Decoder):
    window = 0  # of a sliding attention; 0: none
    theta = 10000.0  # of the rotary embedding, where a configuration has none
    interleaved = False  # rotated pairs lie side by side in a checkpoint's queries and keys
    defaults: ClassVar[
        dict[str, Any]
    ] = {}  # of a family's sizes, where they are not those of Llama

    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read(fields)
        fields.finish()

    def read(self, fields: ConfigReader) -> None:
        """Every field of the configuration; families that are much like this one read more."""
        self.read_sizes(fields, **self.defaults)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.mlp_bias = fields.boolean("mlp_bias", False)
        self.rope = self.read_rope(fields, default_theta=self.theta)
        self.activation = fields.activation("hidden_act", "silu")

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = self.norm(step, x, f"{name}.input_layernorm")
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        h = self.norm(step, x, f"{name}.post_attention_layernorm")
        return b.node("add", x, self.feed_forward(step, h, index, f"{name}.mlp"))

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        return gated_mlp(step, x, name, self.ffn, self.activation, self.mlp_bias)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        rows: tuple[RowSource | None, ...] = (None, None, None)
        if self.interleaved:
            pairs = (self.head_dim, self.rope.dim)
            q_rows, k_rows = (RowSource(f"{name}.{p}_proj", interleaved=pairs) for p in "qk")
            rows = (q_rows, k_rows, None)
        q, k, v = self.qkv(step, x, name, self.attention_bias, rows)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, self.head_dim**-0.5, self.window)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)
