"""OLMo 2: norms behind each half of a layer and none before, and of all queries and all keys."""

from __future__ import annotations

from typing import Any, ClassVar

from satchel.graph.ir import Value
from satchel.models import llama
from satchel.models.base import Step, cached_attention, linear, rms_norm, rotate, split
from satchel.models.rope import Rope


class Model(llama.Model):
    defaults: ClassVar[dict[str, Any]] = {"eps": 1e-5}

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"model.layers.{index}"
        h = self.attention(step, x, index, f"{name}.self_attn")
        x = b.add(x, rms_norm(step, h, f"{name}.post_attention_layernorm", self.eps))
        h = self.feed_forward(step, x, index, f"{name}.mlp")
        return b.node("add", x, rms_norm(step, h, f"{name}.post_feedforward_layernorm", self.eps))

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        return attention_of_normed(self, step, x, index, name)


def attention_of_normed(
    model: llama.Model,
    step: Step,
    x: Value,
    index: int,
    name: str,
    clip: float = 0.0,
    rope: Rope | None = None,
    window: int = 0,
) -> Value:
    """Llama's attention, with one norm for the queries of all heads, and one for the keys."""
    rope = rope or model.rope

    def heads(letter: str, count: int) -> Value:
        width = count * model.head_dim
        made = linear(step, x, f"{name}.{letter}_proj", width, model.attention_bias)
        if letter != "v":
            made = rms_norm(step, made, f"{name}.{letter}_norm", model.eps)
        if clip:
            made = step.builder.clamp(made, low=-clip, high=clip)
        return split(step, made, count, model.head_dim)

    q, k, v = heads("q", model.heads), heads("k", model.kv_heads), heads("v", model.kv_heads)
    q, k = rotate(step, q, rope), rotate(step, k, rope)
    out = cached_attention(step, q, k, v, index, model.head_dim**-0.5, window)
    return linear(step, out, f"{name}.o_proj", model.hidden, model.attention_bias)
