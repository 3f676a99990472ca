"""GLM-4 9B and GLM-edge: interleaved rotary pairs, and gate and up in one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import RowSource, Value
from satchel.models.base import Decoder, Step, cached_attention, gated_mlp, linear, rms_norm, rotate
from satchel.models.config import ConfigReader


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, eps=1.5625e-07, context=131072, head_dim=128)
        self.attention_bias = fields.boolean("attention_bias", True)  # of q, k and v only
        self.activation = fields.activation("hidden_act", "silu")
        self.rope = self.read_rope(fields, default_partial=0.5)
        fields.finish()

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps)
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps)
        h = gated_mlp(step, h, f"{name}.mlp", self.ffn, self.activation, fused=True)
        return b.node("add", x, h)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        pairs = (self.head_dim, self.rope.dim)
        q_rows, k_rows = (RowSource(f"{name}.{p}_proj", interleaved=pairs) for p in "qk")
        q, k, v = self.qkv(step, x, name, self.attention_bias, rows=(q_rows, k_rows, None))
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.o_proj", self.hidden)
