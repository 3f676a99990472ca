"""CodeGen and CodeGen2: attention and MLP side by side, both after one LayerNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.errors import ConfigError
from satchel.graph.ir import RowSource, Value
from satchel.models.base import (
    Decoder,
    Step,
    cached_attention,
    embedding,
    layer_norm,
    linear,
    plain_mlp,
    rotate,
)
from satchel.models.config import ConfigReader
from satchel.models.rope import plain_rope


class Model(Decoder):
    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.vocab_size = fields.positive("vocab_size")
        self.hidden = fields.positive("n_embd")
        self.layers = fields.positive("n_layer")
        self.heads = self.kv_heads = fields.positive("n_head")
        self.head_dim = self.hidden // self.heads
        self.ffn = fields.positive("n_inner", 4 * self.hidden)
        self.eps = fields.number("layer_norm_epsilon", 1e-5)
        self.context = fields.positive("n_positions", 2048)
        self.tied = fields.only("tie_word_embeddings", False)
        self.activation = fields.activation("activation_function", "gelu_new")
        self.rope = plain_rope(fields.positive("rotary_dim", 64))
        self.blocks = self._blocks(fields)
        fields.only("scale_attn_weights", True)
        fields.only("rotary", True)
        for name in ("n_ctx", "attn_pdrop", "embd_pdrop", "resid_pdrop", "gradient_checkpointing"):
            fields.optional(name)  # without effect on what is computed
        for name in ("activation", "first_dropout", "proj_to_labels", "type", "use_proj"):
            fields.optional(f"summary_{name}")  # of a classification head
        fields.finish()

    def _blocks(self, fields: ConfigReader) -> int:
        """In how many blocks qkv_proj lies, one per core of the machine it was trained on.

        No released configuration says it. CodeGen has 4; the CodeGen2 models that have 8 (1B and
        3.7B) are those whose configuration has ``head_dim``. ``mp_num``, if given, decides.
        """
        head_dim = fields.optional("head_dim")
        if head_dim not in (None, self.head_dim):
            raise ConfigError(f"'head_dim' is {head_dim!r}, and n_embd / n_head {self.head_dim}")
        blocks = fields.positive("mp_num", 4 if head_dim is None else 8)
        if self.hidden % self.heads or self.heads % blocks:
            raise ConfigError(
                f"{self.hidden} values and {self.heads} heads do not lie in {blocks} blocks"
            )
        return blocks

    @property
    def unused_tensors(self) -> tuple[str, ...]:
        return ("*.attn.causal_mask", "*.attn.masked_bias", "*.attn.bias", "*.embed_positions")

    def embed(self, step: Step, tokens: Value) -> Value:
        return embedding(step, tokens, "transformer.wte", self.vocab_size, self.hidden)

    def layer(self, step: Step, x: Value, index: int) -> Value:
        b, name = step.builder, f"transformer.h.{index}"
        h = layer_norm(step, x, f"{name}.ln_1", self.eps)
        names = f"{name}.mlp.fc_in", f"{name}.mlp.fc_out"
        mlp = plain_mlp(step, h, names, self.ffn, self.activation)
        return b.node("add", b.add(self.attention(step, h, index, f"{name}.attn"), mlp), x)

    def attention(self, step: Step, x: Value, index: int, name: str) -> Value:
        tensor, pairs = f"{name}.qkv_proj", (self.head_dim, self.rope.dim)
        q, k, v = self.qkv(
            step,
            x,
            name,
            rows=(
                RowSource(tensor, self.ranges(0), interleaved=pairs),
                RowSource(tensor, self.ranges(2), interleaved=pairs),
                RowSource(tensor, self.ranges(1)),
            ),
        )
        q, k = rotate(step, q, self.rope), rotate(step, k, self.rope)
        out = cached_attention(step, q, k, v, index, scale=self.head_dim**-0.5)
        return linear(step, out, f"{name}.out_proj", self.hidden)

    def ranges(self, part: int) -> tuple[tuple[int, int], ...]:
        """The rows of part 0 (q), 1 (v) or 2 (k) of every block."""
        size = self.hidden // self.blocks
        starts = (size * (3 * block + part) for block in range(self.blocks))
        return tuple((start, start + size) for start in starts)

    def logits(self, step: Step, x: Value) -> Value:
        x = self.last_norm(step, x)
        return linear(step, x, "lm_head", self.vocab_size, bias=True, role="head")

    def last_norm(self, step: Step, x: Value) -> Value:
        return layer_norm(step, x, "transformer.ln_f", self.eps)
