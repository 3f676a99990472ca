"""StarCoder2: Llama's attention between LayerNorms, and a plain MLP, all with biases."""

from __future__ import annotations

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, layer_norm, plain_mlp
from satchel.models.config import ConfigReader


class Model(llama.Model):
    def read(self, fields: ConfigReader) -> None:
        self.read_sizes(fields, eps=1e-5, eps_field="norm_epsilon", context=4096, tied=True)
        self.attention_bias = fields.boolean("use_bias", True)
        self.window = int(fields.number_or_off("sliding_window", 0.0))
        self.rope = self.read_rope(fields)
        self.activation = fields.activation("hidden_act", "gelu_pytorch_tanh")
        fields.only("norm_type", "layer_norm")  # written by older configurations, as is the next
        fields.only("mlp_type", "default")

    def norm(self, step: Step, x: Value, name: str) -> Value:
        return layer_norm(step, x, name, self.eps)

    def feed_forward(self, step: Step, x: Value, index: int, name: str) -> Value:
        names = f"{name}.c_fc", f"{name}.c_proj"
        return plain_mlp(step, x, names, self.ffn, self.activation, self.attention_bias)
