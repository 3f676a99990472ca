"""Qwen3-MoE: Qwen3 whose feed-forward layers, or some of them, are mixtures of experts."""

from __future__ import annotations

from satchel.errors import ConfigError
from satchel.graph.ir import Value
from satchel.models import qwen3
from satchel.models.base import Step
from satchel.models.config import ConfigReader
from satchel.models.experts import Experts


class Model(qwen3.Model):
    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        # The published models say num_experts, transformers 5 num_local_experts.
        count = fields.integer("num_local_experts", 0) or fields.positive("num_experts")
        fields.optional("num_experts")
        self.experts = Experts(
            count,
            fields.positive("num_experts_per_tok", 8),
            self.hidden,
            fields.positive("moe_intermediate_size"),
            self.activation,
            fields.boolean("norm_topk_prob", False),
        )
        step = fields.positive("decoder_sparse_step", 1)
        dense = fields.optional("mlp_only_layers") or []
        if not isinstance(dense, list) or not all(isinstance(index, int) for index in dense):
            raise ConfigError(f"'mlp_only_layers' must be a list of layers, not {dense!r}")
        self.mixed = [
            (index + 1) % step == 0 and index not in dense for index in range(self.layers)
        ]

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        if self.mixed[index]:
            return self.experts.mix(step, x, name)
        return super().feed_forward(step, x, index, name)
