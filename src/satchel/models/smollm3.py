"""SmolLM3: Llama where some layers, by default every fourth, have no rotary embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import Value
from satchel.models.base import Decoder, Step, cached_attention, gated_mlp, linear, rms_norm, rotate
from satchel.models.config import ConfigReader, read_windows


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, context=32768, tied=True)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.mlp_bias = fields.boolean("mlp_bias", False)
        self.activation = fields.activation("hidden_act", "silu")
        self.rope = self.read_rope(fields, default_theta=2e6)
        self.rotates = self._rotating_layers(fields)
        self.windows = self._windows(fields)
        fields.optional("max_window_layers")  # in the released configuration, used by nothing
        fields.finish()

    def _rotating_layers(self, fields: ConfigReader) -> list[bool]:
        """``no_rope_layers`` has, despite its name, a 1 for each layer that does rotate."""
        interval = fields.positive("no_rope_layer_interval", 4)
        listed = fields.numbers("no_rope_layers", self.layers)
        if listed is None:
            return [(index + 1) % interval != 0 for index in range(self.layers)]
        return [bool(value) for value in listed]

    def _windows(self, fields: ConfigReader) -> list[int]:
        """Off in the released model; if on, the layers without rotary embedding slide."""
        window = int(fields.number_or_off("sliding_window", 0))
        if not fields.boolean("use_sliding_window", False):
            window = 0
        return read_windows(
            fields, self.layers, window, lambda index: window > 0 and not self.rotates[index]
        )

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps)
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps)
        h = gated_mlp(step, h, f"{name}.mlp", self.ffn, self.activation, self.mlp_bias)
        return b.node("add", x, h)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, self.attention_bias)
        if self.rotates[index]:
            q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        scale, window = self.head_dim**-0.5, self.windows[index]
        out = cached_attention(step, q, k, v, index, scale, window)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)
