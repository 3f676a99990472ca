"""OLMoE: mixtures of experts, and norms of all queries and of all keys together."""

from __future__ import annotations

from typing import Any, ClassVar

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, cached_attention, linear, rms_norm, rotate, split
from satchel.models.config import ConfigReader
from satchel.models.experts import Experts


class Model(llama.Model):
    defaults: ClassVar[dict[str, Any]] = {"eps": 1e-5, "context": 4096}

    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        self.clip = fields.number_or_off("clip_qkv", 0.0)
        self.experts = Experts(
            fields.positive("num_experts", 64),
            fields.positive("num_experts_per_tok", 8),
            self.hidden,
            self.ffn,
            self.activation,
            fields.boolean("norm_topk_prob", False),
        )

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        return self.experts.mix(step, x, name)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        def heads(letter: str, count: int) -> Value:
            width = count * self.head_dim
            made = linear(step, x, f"{name}.{letter}_proj", width, self.attention_bias)
            if letter != "v":
                made = rms_norm(step, made, f"{name}.{letter}_norm", self.eps)
            if self.clip:
                made = step.builder.clamp(made, low=-self.clip, high=self.clip)
            return split(step, made, count, self.head_dim)

        q, k, v = heads("q", self.heads), heads("k", self.kv_heads), heads("v", self.kv_heads)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)
