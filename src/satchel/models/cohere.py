"""Command R and Aya: attention and MLP side by side after one LayerNorm without a bias."""

from __future__ import annotations

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, layer_norm, scaled
from satchel.models.config import ConfigReader


class Model(llama.Model):
    interleaved = True
    theta = 500000.0

    def read(self, fields: ConfigReader) -> None:
        self.read_sizes(fields, eps=1e-5, eps_field="layer_norm_eps", context=8192, tied=True)
        self.attention_bias = fields.boolean("attention_bias", False)
        self.mlp_bias = fields.only("mlp_bias", False)
        self.rope = self.read_rope(fields, default_theta=self.theta)
        # Command R was made for more tokens than its max_position_embeddings say.
        longest = fields.optional("model_max_length")
        if isinstance(longest, int) and longest < 1 << 24:  # beyond, it stands for no limit
            self.context = max(self.context, longest)
        self.activation = fields.activation("hidden_act", "silu")
        self.logit_scale = fields.number("logit_scale", 0.0625)
        fields.only("use_qk_norm", False)  # Command R+, whose heads each have a norm of their own

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = self.norm(step, x, f"{name}.input_layernorm")
        x = b.add(x, self.attention(step, h, index, f"{name}.self_attn"))
        return b.node("add", x, self.feed_forward(step, h, index, f"{name}.mlp"))

    def norm(self, step: Step, x: Value, name: str) -> Value:
        return layer_norm(step, x, name, self.eps, bias=False)

    def logits(self, step: Step, x: Value) -> Value:
        return scaled(step, super().logits(step, x), self.logit_scale)
