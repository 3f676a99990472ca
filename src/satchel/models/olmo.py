"""OLMo: Llama with LayerNorms that have no weights, and in some with clipped queries and keys."""

from __future__ import annotations

import numpy as np

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, cached_attention, linear, rotate
from satchel.models.config import ConfigReader


class Model(llama.Model):
    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        self.eps = 1e-5  # of all; there is no field for it
        self.clip = fields.number_or_off("clip_qkv", 0.0)
        fields.only("mlp_bias", False)

    def norm(self, step: Step, x: Value, name: str) -> Value:
        ones = step.builder.constant("ones", np.ones(self.hidden, np.float32))
        return step.builder.node("layer_norm", x, ones, eps=self.eps)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, self.attention_bias)
        if self.clip:
            q, k, v = (step.builder.clamp(x, low=-self.clip, high=self.clip) for x in (q, k, v))
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)
