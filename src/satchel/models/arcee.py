"""Arcee's AFM 4.5B: Llama with a plain MLP, whose relu is squared."""

from __future__ import annotations

from typing import Any, ClassVar

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, plain_mlp
from satchel.models.config import ConfigReader


class Model(llama.Model):
    defaults: ClassVar[dict[str, Any]] = {"eps": 1e-5, "context": 4096}

    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        self.activation = fields.activation("hidden_act", "relu2")

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        names = f"{name}.up_proj", f"{name}.down_proj"
        return plain_mlp(step, x, names, self.ffn, self.activation, self.mlp_bias)
