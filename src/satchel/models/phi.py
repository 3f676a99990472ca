"""Phi 1, 1.5 and 2: attention and a plain MLP side by side after one LayerNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.graph.ir import Value
from satchel.models.base import (
    Decoder,
    Step,
    cached_attention,
    layer_norm,
    linear,
    plain_mlp,
    rotate,
)
from satchel.models.config import ConfigReader


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.read_sizes(fields, eps=1e-5, eps_field="layer_norm_eps", context=2048)
        self.rope = self.read_rope(fields, default_partial=0.5)
        self.activation = fields.activation("hidden_act", "gelu_new")
        fields.only("tie_word_embeddings", False)
        fields.only("qk_layernorm", False)
        fields.finish()

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = layer_norm(step, x, f"{name}.input_layernorm", self.eps)
        mlp = plain_mlp(step, h, (f"{name}.mlp.fc1", f"{name}.mlp.fc2"), self.ffn, self.activation)
        return b.node("add", b.add(self.attention(step, h, index, f"{name}.self_attn"), mlp), x)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, bias=True)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.dense", self.hidden, bias=True)

    def logits(self, step: Step, x: Value) -> Value:
        x = self.last_norm(step, x)
        return linear(step, x, "lm_head", self.vocab_size, bias=True, role="head")

    def last_norm(self, step: Step, x: Value) -> Value:
        return layer_norm(step, x, "model.final_layernorm", self.eps)
