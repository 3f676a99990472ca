"""Nemotron and Minitron: Arcee's plain MLP, LayerNorms, and partly rotated heads."""

from __future__ import annotations

from satchel.graph.ir import Value
from satchel.models import arcee
from satchel.models.base import Step, layer_norm
from satchel.models.config import ConfigReader


class Model(arcee.Model):
    def read(self, fields: ConfigReader) -> None:
        self.read_sizes(fields, eps=1e-5, eps_field="norm_eps", context=4096)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.mlp_bias = fields.boolean("mlp_bias", False)
        self.rope = self.read_rope(fields, default_partial=0.5)
        self.activation = fields.activation("hidden_act", "relu2")

    def norm(self, step: Step, x: Value, name: str) -> Value:
        return layer_norm(step, x, name, self.eps, add=1)
