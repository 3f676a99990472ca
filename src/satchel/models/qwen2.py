"""Qwen2 and Qwen2.5: Llama with biases on q, k and v."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import Value
from satchel.models.base import Decoder, Step, cached_attention, gated_mlp, linear, rms_norm, rotate
from satchel.models.config import ConfigReader, read_windows


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, context=32768)
        self.activation = fields.activation("hidden_act", "silu")
        self.rope = self.read_rope(fields)
        self.windows = qwen_windows(fields, self.layers)
        fields.only("attention_bias", True)
        fields.only("mlp_bias", False)
        fields.only("use_mrope", False)
        fields.finish()

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps)
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps)
        return b.node("add", x, gated_mlp(step, h, f"{name}.mlp", self.ffn, self.activation))

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, bias=True)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        scale, window = self.head_dim**-0.5, self.windows[index]
        out = cached_attention(step, q, k, v, index, scale, window)
        return linear(step, out, f"{name}.o_proj", self.hidden)


def qwen_windows(fields: ConfigReader, layers: int) -> list[int]:
    """Off in every released model; if on, the layers from ``max_window_layers`` on slide."""
    window = int(fields.number_or_off("sliding_window", 4096))
    if not fields.boolean("use_sliding_window", False):
        window = 0
    first = fields.integer("max_window_layers", 28)
    return read_windows(fields, layers, window, lambda index: window > 0 and index >= first)
