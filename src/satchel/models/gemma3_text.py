"""Gemma 3: Gemma 2 with normed queries and keys, mostly sliding layers, and two thetas."""

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
    softcapped,
)
from satchel.models.config import ConfigReader, read_windows


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, context=131072, tied=True, head_dim=256)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.activation = fields.activation("hidden_activation", "gelu_pytorch_tanh")
        fields.optional("hidden_act")  # hidden_activation is the one that counts
        self.scale = fields.above_zero("query_pre_attn_scalar", 256.0) ** -0.5
        self.logit_cap = fields.number_or_off("final_logit_softcapping", 0.0)
        window = int(fields.number_or_off("sliding_window", 4096))
        pattern = fields.positive("sliding_window_pattern", 6)
        self.windows = read_windows(
            fields, self.layers, window, lambda index: (index + 1) % pattern != 0
        )
        theta = fields.number("rope_theta", 1e6)
        local_theta = fields.number("rope_local_base_freq", 10000.0)
        self.full_rope, self.sliding_rope = self.read_two_ropes(fields, theta, local_theta)
        fields.optional("_sliding_window_pattern")  # written beside layer_types, which count
        fields.only("attn_logit_softcapping", 0.0)
        fields.only("mlp_bias", False)
        fields.only("use_bidirectional_attention", False)
        fields.finish()

    def embed(self, step: Step, tokens: Value) -> Value:
        return scaled(step, super().embed(step, tokens), self.hidden**0.5)

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = self.norm(step, x, f"{name}.input_layernorm")
        h = self.attention(step, h, index, f"{name}.self_attn")
        x = b.add(x, self.norm(step, h, f"{name}.post_attention_layernorm"))
        h = self.norm(step, x, f"{name}.pre_feedforward_layernorm")
        h = gated_mlp(step, h, f"{name}.mlp", self.ffn, self.activation)
        return b.node("add", x, self.norm(step, h, f"{name}.post_feedforward_layernorm"))

    def norm(self, step: Step, x: Value, name: str) -> Value:
        return rms_norm(step, x, name, self.eps, add=1)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        window = self.windows[index]
        rope = self.sliding_rope if window else self.full_rope
        q, k, v = self.qkv(step, x, name, self.attention_bias)
        q = rotate(step, self.norm(step, q, f"{name}.q_norm"), rope)
        k = rotate(step, self.norm(step, k, f"{name}.k_norm"), rope)
        out = cached_attention(step, q, k, v, index, self.scale, window)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)

    def logits(self, step: Step, x: Value) -> Value:
        return softcapped(step, super().logits(step, x), self.logit_cap)

    def last_norm(self, step: Step, x: Value) -> Value:
        return self.norm(step, x, "model.norm")
