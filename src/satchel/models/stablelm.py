"""StableLM 3B, Zephyr and StableLM 2 1.6B: Llama with LayerNorms and partly rotated heads."""

from __future__ import annotations

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, cached_attention, layer_norm, linear, rotate
from satchel.models.config import ConfigReader


class Model(llama.Model):
    def read(self, fields: ConfigReader) -> None:
        self.read_sizes(fields, eps=1e-5, eps_field="layer_norm_eps", context=4096)
        self.mlp_bias = False
        self.qkv_bias = fields.boolean("use_qkv_bias", False)
        self.rope = self.read_rope(fields, default_partial=0.25)
        self.activation = fields.activation("hidden_act", "silu")
        fields.only("qk_layernorm", False)
        fields.only("use_parallel_residual", False)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name, self.qkv_bias)
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.o_proj", self.hidden)

    def norm(self, step: Step, x: Value, name: str) -> Value:
        return layer_norm(step, x, name, self.eps)
