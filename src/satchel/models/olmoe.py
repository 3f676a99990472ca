"""OLMoE: mixtures of experts, and norms of all queries and of all keys together."""

from __future__ import annotations

from typing import Any, ClassVar

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step
from satchel.models.config import ConfigReader
from satchel.models.experts import Experts
from satchel.models.olmo2 import attention_of_normed


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
        return attention_of_normed(self, step, x, index, name, self.clip)
