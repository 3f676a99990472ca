"""Mixtral: Llama whose feed-forward layers are mixtures of experts."""

from __future__ import annotations

from typing import Any, ClassVar

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step
from satchel.models.config import ConfigReader
from satchel.models.experts import Experts


class Model(llama.Model):
    theta = 1e6
    defaults: ClassVar[dict[str, Any]] = {"eps": 1e-5, "context": 131072}

    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        self.window = int(fields.number_or_off("sliding_window", 0.0))
        self.experts = Experts(
            fields.positive("num_local_experts", 8),
            fields.positive("num_experts_per_tok", 2),
            self.hidden,
            self.ffn,
            self.activation,
        )

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        return self.experts.mix(step, x, name)
