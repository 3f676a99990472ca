"""Seed-OSS: Llama with biases on q, k and v, and one at the attention's end of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, cached_attention, linear, rotate
from satchel.models.config import ConfigReader


class Model(llama.Model):
    defaults: ClassVar[dict[str, Any]] = {"context": 524288, "head_dim": 128}

    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        self.attention_bias = fields.boolean("attention_bias", True)
        self.output_bias = fields.boolean("attention_out_bias", False)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, self.attention_bias)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.output_bias)
