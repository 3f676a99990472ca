"""OLMo 3: OLMo 2 with three sliding layers to a full one; only full ones have scaled rotations."""

from __future__ import annotations

from satchel.graph.ir import Value
from satchel.models import olmo2
from satchel.models.base import Step
from satchel.models.config import ConfigReader, read_windows


class Model(olmo2.Model):
    theta = 500000.0

    def read(self, fields: ConfigReader) -> None:
        self.read_sizes(fields, eps=1e-5)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.mlp_bias = fields.only("mlp_bias", False)
        self.activation = fields.activation("hidden_act", "silu")
        window = int(fields.number_or_off("sliding_window", 4096))
        self.windows = read_windows(fields, self.layers, window, lambda index: (index + 1) % 4 != 0)
        theta = fields.number("rope_theta", self.theta)
        self.rope, self.sliding_rope = self.read_two_ropes(fields, theta, theta)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        window = self.windows[index]
        rope = self.sliding_rope if window else self.rope
        return olmo2.attention_of_normed(self, step, x, index, name, rope=rope, window=window)
