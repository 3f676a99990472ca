"""The vision transformers of CLIP and SigLIP, as graphs: what all towers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from satchel.errors import ConfigError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Value
from satchel.graph.passes import STANDARD, optimize
from satchel.graph.passes.fusion import fuse_activations
from satchel.models.base import Step, layer_norm, linear
from satchel.models.config import ConfigReader
from satchel.program.names import SEE_METHOD

_QUICK = 1.702  # of CLIP's GELU: x * sigmoid(1.702 x)


@dataclass(frozen=True)
class VisionEncoder:
    """Patches of a frame through layers of attention; ``name`` is where its weights lie."""

    name: str
    hidden: int
    heads: int
    ffn: int
    layers: int
    size: int
    patch: int
    eps: float
    activation: str
    is_clip: bool  # with a row of its own before the patches, and a norm before the layers

    def __post_init__(self) -> None:
        if self.hidden % self.heads or self.size < self.patch:
            raise ConfigError("the vision tower's configuration is not supported")

    @property
    def kernel(self) -> str:
        """The weight that makes rows of patches."""
        return f"{self.name}.embeddings.patch_embedding.weight"

    @property
    def side(self) -> int:
        """Patches on a side."""
        return self.size // self.patch

    @property
    def patches(self) -> int:
        return self.side**2

    def up_to(self, layer: int) -> VisionEncoder:
        """Only as many layers as it takes to the hidden states of ``layer``, counted as
        transformers does: 0 is before the first, -1 behind the last."""
        layers = layer if layer >= 0 else self.layers + 1 + layer
        if not 0 <= layers <= self.layers:
            raise ConfigError(f"the vision tower has no layer {layer}")
        return replace(self, layers=layers)

    def begin(self) -> tuple[Step, Value]:
        """The graph of ``see``, and the rows behind the last layer: a patch's each."""
        b = GraphBuilder(SEE_METHOD)
        pixels = b.input("pixels", (self.size, self.size, 3))
        none = b.constant("none", np.zeros(1, np.int32))
        step = Step(b, none, none, 1, DType.f32)
        x = self._patches(b, pixels)
        if self.is_clip:
            own = b.weight(f"{self.name}.embeddings.class_embedding", (self.hidden,), "vector")
            x = b.concat(b.reshape(own, shape=(1, self.hidden)), x, axis=0)
        count = self.patches + self.is_clip
        table = f"{self.name}.embeddings.position_embedding.weight"
        x = b.add(x, b.weight(table, (count, self.hidden), "vector"))
        if self.is_clip:
            x = layer_norm(step, x, f"{self.name}.pre_layrnorm", self.eps)
        for index in range(self.layers):
            x = self._layer(step, x, count, f"{self.name}.encoder.layers.{index}")
        return step, x

    def _patches(self, b: GraphBuilder, pixels: Value) -> Value:
        window = (self.patch, self.patch)
        weights = [b.weight(self.kernel, (self.hidden, 3 * self.patch**2), "conv")]
        if not self.is_clip:
            bias = self.kernel.replace(".weight", ".bias")
            weights.append(b.weight(bias, (self.hidden,), "vector"))
        x = b.conv2d(
            b.reshape(pixels, shape=(1, self.size, self.size, 3)),
            *weights,
            kernel=window,
            stride=window,
            padding=(0, 0, 0, 0),
            dilation=(1, 1),
            groups=1,
        )
        return b.node("reshape", x, shape=(self.patches, self.hidden))

    def _layer(self, step: Step, x: Value, count: int, name: str) -> Value:
        b, dim = step.builder, self.hidden // self.heads
        h = layer_norm(step, x, f"{name}.layer_norm1", self.eps)
        q, k, v = (
            b.reshape(
                linear(step, h, f"{name}.self_attn.{p}_proj", self.hidden, True),
                shape=(1, count, self.heads, dim),
            )
            for p in "qkv"
        )
        h = b.reshape(b.attention_full(q, k, v, scale=dim**-0.5), shape=(count, self.hidden))
        x = b.add(x, linear(step, h, f"{name}.self_attn.out_proj", self.hidden, True))
        h = layer_norm(step, x, f"{name}.layer_norm2", self.eps)
        h = linear(step, h, f"{name}.mlp.fc1", self.ffn, True)
        if self.activation == "quick_gelu":
            h = b.mul(h, b.sigmoid(b.affine(h, scale=_QUICK)))
        else:
            h = b.node(self.activation, h)
        return b.node("add", x, linear(step, h, f"{name}.mlp.fc2", self.hidden, True))


def clip(vision: Mapping[str, Any], name: str) -> VisionEncoder:
    """CLIP's, by its configuration."""
    fields = ConfigReader(vision)
    made = VisionEncoder(
        name,
        hidden=fields.positive("hidden_size", 768),
        heads=fields.positive("num_attention_heads", 12),
        ffn=fields.positive("intermediate_size", 3072),
        layers=fields.positive("num_hidden_layers", 12),
        size=fields.positive("image_size", 224),
        patch=fields.positive("patch_size", 32),
        eps=fields.number("layer_norm_eps", 1e-5),
        activation=fields.only("hidden_act", "quick_gelu", "gelu"),
        is_clip=True,
    )
    ignored = ("projection_dim", "initializer_factor", "attention_dropout", "vocab_size")
    return _finished(fields, made, ignored)


def siglip(vision: Mapping[str, Any], name: str, **usual: Any) -> VisionEncoder:
    """SigLIP's, by its configuration; ``usual`` are a family's own defaults."""
    fields = ConfigReader({**usual, **vision})
    made = VisionEncoder(
        name,
        hidden=fields.positive("hidden_size", 768),
        heads=fields.positive("num_attention_heads", 12),
        ffn=fields.positive("intermediate_size", 3072),
        layers=fields.positive("num_hidden_layers", 12),
        size=fields.positive("image_size", 224),
        patch=fields.positive("patch_size", 16),
        eps=fields.number("layer_norm_eps", 1e-6),
        activation=fields.activation("hidden_act", "gelu_pytorch_tanh"),
        is_clip=False,
    )
    ignored = ("max_image_size", "size", "tie_word_embeddings", "use_base_siglip")
    return _finished(fields, made, (*ignored, "vision_use_head", "attention_dropout"))


def _finished(fields: ConfigReader, made: VisionEncoder, ignored: tuple[str, ...]) -> VisionEncoder:
    fields.only("num_channels", 3)
    for name in ignored:
        fields.optional(name)
    fields.finish()
    return made


def finished_graph(step: Step, rows: Value) -> Graph:
    """``see``, which gives these rows."""
    step.builder.output(rows, "rows")
    return optimize(step.builder.finish(), (*STANDARD, fuse_activations))
