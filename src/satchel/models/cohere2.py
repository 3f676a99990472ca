"""Command R7B and Command A: Command R with sliding layers, which alone have a rotary embedding."""

from __future__ import annotations

from satchel.graph.ir import RowSource, Value
from satchel.models import cohere
from satchel.models.base import Step, cached_attention, linear, rotate
from satchel.models.config import ConfigReader, read_windows


class Model(cohere.Model):
    theta = 10000.0

    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        window = int(fields.number_or_off("sliding_window", 4096))
        pattern = fields.positive("sliding_window_pattern", 4)
        self.windows = read_windows(
            fields, self.layers, window, lambda index: (index + 1) % pattern != 0
        )
        # In the released configurations, of another toolkit; they say what is so in any case.
        fields.only("order_of_interleaved_layers", "local_attn_first")
        fields.only("position_embedding_type", "rope_gptj")
        fields.only("rotary_pct", 1.0)
        for name in ("use_embedding_sharing", "use_gated_activation", "use_parallel_block"):
            fields.only(name, True)
        for name in ("layer_switch", "use_parallel_embedding", "_sliding_window_pattern"):
            fields.optional(name)  # the pattern once more, and how memory was shared in training

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        if window := self.windows[index]:
            pairs = (self.head_dim, self.rope.dim)
            q_rows, k_rows = (RowSource(f"{name}.{p}_proj", interleaved=pairs) for p in "qk")
            q, k, v = self.qkv(step, x, name, self.attention_bias, (q_rows, k_rows, None))
            q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        else:
            q, k, v = self.qkv(step, x, name, self.attention_bias)
        out = cached_attention(step, q, k, v, index, self.head_dim**-0.5, window)
        return linear(step, out, f"{name}.o_proj", self.hidden, self.attention_bias)
