"""ERNIE 4.5: Llama with interleaved rotary pairs."""

from __future__ import annotations

from satchel.models import llama
from satchel.models.config import ConfigReader


class Model(llama.Model):
    interleaved = True
    theta = 500000.0

    def read(self, fields: ConfigReader) -> None:
        self.read_sizes(fields, eps=1e-5, context=131072, tied=True, head_dim=128)
        self.attention_bias = self.mlp_bias = fields.boolean("use_bias", False)
        self.rope = self.read_rope(fields, default_theta=self.theta)
        self.activation = fields.activation("hidden_act", "silu")
