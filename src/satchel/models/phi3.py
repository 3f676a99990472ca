"""Phi-3, Phi-3.5-mini and Phi-4-mini: fused tensors, a partly rotated head, longrope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import RowSource, Value
from satchel.models.base import Decoder, Step, cached_attention, gated_mlp, linear, rms_norm, rotate
from satchel.models.config import ConfigReader


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, eps=1e-5, context=4096)
        self.activation = fields.activation("hidden_act", "silu")
        self.window = int(fields.number_or_off("sliding_window", 0))
        original = fields.positive("original_max_position_embeddings", 4096)
        self.rope = self.read_rope(fields, default_partial=1.0, original=original)
        for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
            fields.only(name, False)
        for name in ("full_attn_mod", "interpolate_factor"):
            fields.only(name, 1)
        for name in ("embd_pdrop", "resid_pdrop"):
            fields.optional(name)  # dropout: only in training
        fields.finish()

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps)
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps)
        h = gated_mlp(step, h, f"{name}.mlp", self.ffn, self.activation, fused=True)
        return b.node("add", x, h)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        ends = self.heads * self.head_dim, (self.heads + self.kv_heads) * self.head_dim
        last = ends[1] + self.kv_heads * self.head_dim
        rows = tuple(
            RowSource(f"{name}.qkv_proj", (part,)) for part in ((0, ends[0]), ends, (ends[1], last))
        )
        q, k, v = self.qkv(step, x, name, rows=rows)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, self.head_dim**-0.5, self.window)
        return linear(step, out, f"{name}.o_proj", self.hidden)
