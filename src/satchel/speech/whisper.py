"""Whisper's graphs: what an encoder makes of 30 seconds, and a decoder that listens to it.

``encode`` leaves the keys and values of the cross-attention in states, so that they are made once
for a window and every step of ``decode`` reads them. ``align`` is a step that also tells where its
tokens listened. ``hear`` makes the states of what an encoder gave that ran elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from satchel.errors import ConfigError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, RowSource, Sym, Value
from satchel.graph.ops.attention import cache_row
from satchel.graph.passes import STANDARD, optimize
from satchel.graph.passes.fusion import fuse_activations
from satchel.models.base import Step, cached_attention, embedding, layer_norm, linear, split
from satchel.models.config import ConfigReader

ENCODE, DECODE, ALIGN, HEAR = "encode", "decode", "align", "hear"
EPS = 1e-5
KERNEL = 3  # of both convolutions
MOST_ROWS = 32  # of logits that a step gives: beams
CONVOLUTIONS = ("model.encoder.conv1", "model.encoder.conv2")

# Of a configuration, what only training and other tasks read.
_UNUSED = """apply_spec_augment classifier_proj_size decoder_layerdrop encoder_layerdrop
    activation_dropout dropout mask_feature_length mask_feature_min_masks mask_feature_prob
    mask_time_length mask_time_min_masks mask_time_prob median_filter_width num_hidden_layers
    use_weighted_layer_sum layerdrop max_length""".split()


class Whisper:
    """The model of a configuration in Hugging Face's terms.

    >>> sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
    >>> sizes |= {"decoder_attention_heads": 2, "d_model": 16, "vocab_size": 51865}
    >>> Whisper({"model_type": "whisper", **sizes}).frames
    3000
    """

    unused_tensors = ("proj_out.weight",)  # it is the embedding

    def __init__(self, config: Mapping[str, Any]) -> None:
        fields = ConfigReader(config)
        self.vocab_size = fields.positive("vocab_size")
        self.mels = fields.positive("num_mel_bins", 80)
        self.hidden = fields.positive("d_model")
        self.encoder_layers = fields.positive("encoder_layers")
        self.decoder_layers = fields.positive("decoder_layers")
        self.encoder_heads = fields.positive("encoder_attention_heads")
        self.decoder_heads = fields.positive("decoder_attention_heads")
        self.encoder_ffn = fields.positive("encoder_ffn_dim", 4 * self.hidden)
        self.decoder_ffn = fields.positive("decoder_ffn_dim", 4 * self.hidden)
        self.positions = fields.positive("max_source_positions", 1500)
        self.context = fields.positive("max_target_positions", 448)
        self.activation = fields.activation("activation_function", "gelu")
        fields.only("scale_embedding", False)
        fields.only("tie_word_embeddings", True)
        for name in _UNUSED:
            fields.optional(name)
        fields.finish()
        for heads in (self.encoder_heads, self.decoder_heads):
            if self.hidden % heads:
                raise ConfigError(f"{heads} heads do not divide the width {self.hidden}")

    @property
    def frames(self) -> int:
        """Of a spectrogram, in a window: the second convolution takes every other one."""
        return 2 * self.positions

    def encode(self, cache: DType) -> Graph:
        """mel [frames, mels] -> audio [positions, hidden], and the cross-attention's states."""
        b = GraphBuilder(ENCODE)
        mel = b.input("mel", (self.frames, self.mels))
        step = self._everywhere(b, cache)
        x = b.reshape(mel, shape=(1, 1, self.frames, self.mels))
        for number, name in enumerate(CONVOLUTIONS, start=1):
            x = b.node(self.activation, self._convolution(step, x, name, stride=number))
        x = b.reshape(x, shape=(self.positions, self.hidden))
        table = "model.encoder.embed_positions.weight"
        x = b.add(x, b.weight(table, (self.positions, self.hidden), "vector"))
        for index in range(self.encoder_layers):
            x = self._encoder_layer(step, x, f"model.encoder.layers.{index}")
        x = layer_norm(step, x, "model.encoder.layer_norm", EPS)
        self._hear(step, x)
        b.output(x, "audio")
        return self._finished(b)

    def hear(self, cache: DType) -> Graph:
        """audio [positions, hidden] -> the cross-attention's states."""
        b = GraphBuilder(HEAR)
        audio = b.input("audio", (self.positions, self.hidden))
        self._hear(self._everywhere(b, cache), audio)
        return self._finished(b)

    def _everywhere(self, b: GraphBuilder, cache: DType) -> Step:
        """A step over all positions of a window."""
        everywhere = np.arange(self.positions, dtype=np.int32)
        sequence = b.constant("audio.sequence", np.zeros_like(everywhere))
        place = b.constant("audio.position", everywhere)
        return Step(b, sequence, place, self.positions, cache)

    def _hear(self, step: Step, audio: Value) -> None:
        for index in range(self.decoder_layers):
            name = f"model.decoder.layers.{index}.encoder_attn"
            for part, bias in (("k", False), ("v", True)):
                made = self._heads(
                    step, linear(step, audio, f"{name}.{part}_proj", self.hidden, bias)
                )
                step.builder.cache_write(self._heard(step, index, part), made, *step.where)

    def decode(self, cache: DType) -> Graph:
        """tokens [S] with their positions and sequences -> logits of the rows that are wanted."""
        return self._decoder(DECODE, cache, MOST_ROWS)

    def align(self, cache: DType, heads: Sequence[tuple[int, int]]) -> Graph:
        """The same with the audio itself, and the scores of some heads' cross-attention.

        ``heads`` are (layer, head); those of a layer are the output ``scores.LAYER``,
        [heads, S, positions].
        """
        return self._decoder(ALIGN, cache, self.context, heads)

    def _decoder(
        self, name: str, cache: DType, rows: int, heads: Sequence[tuple[int, int]] = ()
    ) -> Graph:
        b = GraphBuilder(name)
        tokens = Sym("S", self.context)
        ids = b.input("tokens", (tokens,), DType.i32)
        position = b.input("position", (tokens,), DType.i32)
        wanted = b.input("rows", (Sym("L", min(rows, self.context)),), DType.i32)
        audio = b.input("audio", (self.positions, self.hidden)) if heads else None
        sequence = b.input("sequence", (tokens,), DType.i32)
        step = Step(b, sequence, position, self.context, cache)
        # A token listens to all of the window, which is there once for all sequences.
        window, last = (
            b.expand(b.constant("audio.listen", np.array([n], np.int32)), ids, shape=(-1,))
            for n in (0, self.positions - 1)
        )
        hearing = Step(b, window, last, self.positions, cache)
        x = embedding(step, ids, "model.decoder.embed_tokens", self.vocab_size, self.hidden)
        table = "model.decoder.embed_positions.weight"
        places = b.weight(table, (self.context, self.hidden), "mix")
        x = b.add(x, b.embedding(position, places))
        for index in range(self.decoder_layers):
            own = [head for layer, head in heads if layer == index]
            x = self._decoder_layer(step, hearing, x, index, audio if own else None, own)
        x = layer_norm(step, b.take_rows(x, wanted), "model.decoder.layer_norm", EPS)
        head = "model.decoder.embed_tokens"
        b.output(linear(step, x, head, self.vocab_size, role="embedding"), "logits")
        return self._finished(b)

    def _decoder_layer(
        self,
        step: Step,
        hearing: Step,
        x: Value,
        index: int,
        audio: Value | None,
        heads: Sequence[int],
    ) -> Value:
        b, name = step.builder, f"model.decoder.layers.{index}"
        scale = (self.hidden // self.decoder_heads) ** -0.5
        h = layer_norm(step, x, f"{name}.self_attn_layer_norm", EPS)
        q, k, v = (
            self._heads(step, linear(step, h, f"{name}.self_attn.{p}_proj", self.hidden, p != "k"))
            for p in "qkv"
        )
        h = cached_attention(step, q, k, v, index, scale)
        x = b.add(x, linear(step, h, f"{name}.self_attn.out_proj", self.hidden, True))
        h = layer_norm(step, x, f"{name}.encoder_attn_layer_norm", EPS)
        query = linear(step, h, f"{name}.encoder_attn.q_proj", self.hidden, True)
        keys, values = (self._heard(hearing, index, part) for part in "kv")
        q = self._heads(step, query)
        h = b.attention(q, keys, values, *hearing.where, scale=scale)
        if audio is not None:
            self._scores(hearing, q, audio, index, heads, scale)
        h = linear(
            step, split(step, h, self.hidden), f"{name}.encoder_attn.out_proj", self.hidden, True
        )
        return self._feed_forward(step, b.add(x, h), name, self.decoder_ffn)

    def _scores(
        self, step: Step, q: Value, audio: Value, index: int, heads: Sequence[int], scale: float
    ) -> None:
        """Where a layer's tokens listen, of some heads, before the softmax."""
        b = step.builder
        name = f"model.decoder.layers.{index}.encoder_attn.k_proj"
        keys = self._heads(step, linear(step, audio, name, self.hidden))
        chosen = b.constant(f"heads.{index}", np.array(heads, np.int32))
        q = b.transpose(b.take(q, chosen, axis=1), perm=(1, 0, 2))
        keys = b.transpose(b.take(keys, chosen, axis=1), perm=(1, 2, 0))
        b.output(b.affine(b.matmul(q, keys), scale=scale), f"scores.{index}")

    def _encoder_layer(self, step: Step, x: Value, name: str) -> Value:
        b, heads = step.builder, self.encoder_heads
        h = layer_norm(step, x, f"{name}.self_attn_layer_norm", EPS)
        shape = (1, self.positions, heads, self.hidden // heads)
        q, k, v = (
            b.reshape(
                linear(step, h, f"{name}.self_attn.{p}_proj", self.hidden, p != "k"), shape=shape
            )
            for p in "qkv"
        )
        h = b.attention_full(q, k, v, scale=(self.hidden // heads) ** -0.5)
        h = b.reshape(h, shape=(self.positions, self.hidden))
        x = b.add(x, linear(step, h, f"{name}.self_attn.out_proj", self.hidden, True))
        return self._feed_forward(step, x, name, self.encoder_ffn)

    def _feed_forward(self, step: Step, x: Value, name: str, ffn: int) -> Value:
        b = step.builder
        h = layer_norm(step, x, f"{name}.final_layer_norm", EPS)
        h = b.node(self.activation, linear(step, h, f"{name}.fc1", ffn, True))
        return b.add(x, linear(step, h, f"{name}.fc2", self.hidden, True))  # type: ignore[no-any-return]

    def _convolution(self, step: Step, x: Value, name: str, stride: int) -> Value:
        b = step.builder
        channels = x.shape[-1]
        assert isinstance(channels, int)
        # The tensor is [out, in, 3] in checkpoints, and is brought to this form as it is read.
        weight = b.weight(f"{name}.weight", (self.hidden, KERNEL * channels), "conv")
        bias = b.weight(f"{name}.bias", (self.hidden,), "vector", RowSource(f"{name}.bias"))
        return b.conv2d(  # type: ignore[no-any-return]
            x,
            weight,
            bias,
            kernel=(1, KERNEL),
            stride=(1, stride),
            padding=(0, 0, 1, 1),
            dilation=(1, 1),
            groups=1,
        )

    def _heads(self, step: Step, x: Value) -> Value:
        return split(step, x, self.decoder_heads, self.hidden // self.decoder_heads)

    def _heard(self, step: Step, index: int, part: str) -> Value:
        """The state of a layer's keys or values of the audio."""
        row = cache_row(step.cache_dtype, self.hidden // self.decoder_heads)
        assert isinstance(row, int)
        shape = (self.decoder_heads, self.positions, row)
        return step.builder.state(f"heard.{index}.{part}", shape, step.cache_dtype)

    @staticmethod
    def _finished(b: GraphBuilder) -> Graph:
        return optimize(b.finish(), (*STANDARD, fuse_activations))
