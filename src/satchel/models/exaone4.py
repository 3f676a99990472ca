"""EXAONE 4: OLMo 2's norms behind each half, Qwen3's of queries and keys, and sliding layers."""

from __future__ import annotations

from satchel.errors import ConfigError
from satchel.graph.ir import Value
from satchel.models import olmo2
from satchel.models.base import Step, cached_attention, linear, rms_norm, rotate
from satchel.models.config import ConfigReader, read_windows


class Model(olmo2.Model):
    def read(self, fields: ConfigReader) -> None:
        super().read(fields)
        window = int(fields.number_or_off("sliding_window", 4096))
        self.windows = self._windows(fields, window)
        # Beside sliding layers, those that see all tokens have no rotary embedding.
        self.rotates = [not window or slides > 0 for slides in self.windows]
        fields.only("attention_bias", False)
        fields.only("mlp_bias", False)

    def _windows(self, fields: ConfigReader, window: int) -> list[int]:
        pattern = fields.optional("sliding_window_pattern")
        if fields.optional("layer_types") is not None:
            pattern = 4  # the list is what counts
        elif not isinstance(pattern, str):
            pattern = fields.positive("sliding_window_pattern", 4)
        return read_windows(
            fields, self.layers, window, lambda index: window > 0 and _is_local(pattern, index)
        )

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        q, k, v = self.qkv(step, x, name)
        q = rms_norm(step, q, f"{name}.q_norm", self.eps)
        k = rms_norm(step, k, f"{name}.k_norm", self.eps)
        if self.rotates[index]:
            q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, self.head_dim**-0.5, self.windows[index])
        return linear(step, out, f"{name}.o_proj", self.hidden)


def _is_local(pattern: int | str, index: int) -> bool:
    """Whether a layer slides: all but every fourth do, or the word says it, as "LLLG" does."""
    if isinstance(pattern, int):
        return (index + 1) % pattern != 0
    if set(pattern) - {"L", "G"} or not pattern:
        raise ConfigError(f"'sliding_window_pattern' {pattern!r} is not made of L and G")
    return pattern[index % len(pattern)] == "L"
