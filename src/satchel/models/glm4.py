"""GLM-4-0414: GLM with a norm behind each half of a layer, too."""

from __future__ import annotations

from satchel.graph.ir import Value
from satchel.models import glm
from satchel.models.base import Step, gated_mlp, rms_norm


class Model(glm.Model):
    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = rms_norm(step, x, f"{name}.input_layernorm", self.eps)
        h = self.attention(step, h, index, f"{name}.self_attn")
        x = b.add(x, rms_norm(step, h, f"{name}.post_self_attn_layernorm", self.eps))
        h = rms_norm(step, x, f"{name}.post_attention_layernorm", self.eps)
        h = gated_mlp(step, h, f"{name}.mlp", self.ffn, self.activation, fused=True)
        return b.node("add", x, rms_norm(step, h, f"{name}.post_mlp_layernorm", self.eps))
