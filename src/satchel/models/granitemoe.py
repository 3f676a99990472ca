"""Granite 3 with mixtures of experts."""

from __future__ import annotations

from satchel.graph.ir import Value
from satchel.models import granite
from satchel.models.base import Step
from satchel.models.config import ConfigReader
from satchel.models.experts import Experts


class Model(granite.Model):
    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        self.experts = Experts(
            fields.positive("num_local_experts", 8),
            fields.positive("num_experts_per_tok", 2),
            self.hidden,
            self.ffn,
            self.activation,
        )

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        return self.experts.mix(step, x, name)
