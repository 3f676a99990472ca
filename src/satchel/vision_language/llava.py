"""LLaVA-1.5: CLIP's vision tower and a projector before a language model.

``see`` makes of an image the rows that stand for it among the embeddings of a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.base import Checkpoint, TensorInfo
from satchel.checkpoints.jsonfile import read_json_if_there
from satchel.checkpoints.overlay import FloatTensor
from satchel.errors import CheckpointError, ConfigError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Value
from satchel.graph.passes import STANDARD, optimize
from satchel.graph.passes.fusion import fuse_activations
from satchel.models.base import Step, layer_norm, linear
from satchel.models.config import ConfigReader
from satchel.program.names import SEE_METHOD
from satchel.quantize.affine import QuantizedWeight
from satchel.vision_language.preprocess import ClipPreprocessing

LLAVA = "llava"  # the model_type
TOWER, PROJECTOR = "vision_tower", "multi_modal_projector"
KERNEL = f"{TOWER}.embeddings.patch_embedding.weight"
_QUICK = 1.702  # of CLIP's GELU: x * sigmoid(1.702 x)


class LlavaTower:
    """The part of a configuration that sees."""

    parts = (TOWER, PROJECTOR)

    def __init__(self, config: Mapping[str, Any], preprocessing: Mapping[str, Any]) -> None:
        vision = config.get("vision_config")
        text = config.get("text_config")
        if not isinstance(vision, dict) or not isinstance(text, dict):
            raise ConfigError("the configuration has no vision_config and text_config")
        if vision.get("model_type") != "clip_vision_model":
            raise ConfigError(f"images are seen by CLIP, not by {vision.get('model_type')!r}")
        fields = ConfigReader(vision)
        self.hidden = fields.positive("hidden_size", 1024)
        self.heads = fields.positive("num_attention_heads", 16)
        self.ffn = fields.positive("intermediate_size", 4096)
        self.size = fields.positive("image_size", 336)
        self.patch = fields.positive("patch_size", 14)
        self.eps = fields.number("layer_norm_eps", 1e-5)
        self.activation = fields.only("hidden_act", "quick_gelu", "gelu")
        fields.only("num_channels", 3)
        layers = fields.positive("num_hidden_layers", 24)
        for name in ("projection_dim", "initializer_factor", "attention_dropout", "vocab_size"):
            fields.optional(name)
        fields.finish()
        chosen = config.get("vision_feature_layer", -2)
        if not isinstance(chosen, int):
            raise ConfigError("several vision_feature_layer are not supported")
        self.layers = chosen if chosen >= 0 else layers + 1 + chosen
        self.cut = config.get("vision_feature_select_strategy", "default") == "default"
        self.out = ConfigReader(text).positive("hidden_size", 4096)
        self.projector = {"gelu": "gelu"}.get(config.get("projector_hidden_act", "gelu"), "")
        if not self.projector or not 0 <= self.layers <= layers or self.hidden % self.heads:
            raise ConfigError("the vision tower's configuration is not supported")
        self.bias = bool(config.get("multimodal_projector_bias", True))
        token = config.get("image_token_index", config.get("image_token_id", 32000))
        if not isinstance(token, int):
            raise ConfigError(f"the image's token is {token!r}")
        self.token = token
        self.preprocessing = ClipPreprocessing.from_processor(preprocessing, self.size)
        self.unused_tensors = (f"{TOWER}.post_layernorm.*", f"{TOWER}.encoder.layers.*")

    @property
    def patches(self) -> int:
        return (self.size // self.patch) ** 2

    @property
    def rows(self) -> int:
        """That an image takes in a prompt."""
        return self.patches + (not self.cut)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": LLAVA,
            "token": self.token,
            "rows": self.rows,
            "preprocessing": self.preprocessing.to_dict(),
        }

    def see(self) -> Graph:
        """pixels [size, size, 3] -> rows [rows, hidden of the language model]"""
        b = GraphBuilder(SEE_METHOD)
        pixels = b.input("pixels", (self.size, self.size, 3))
        none = b.constant("none", np.zeros(1, np.int32))
        step = Step(b, none, none, 1, DType.f32)
        window = (self.patch, self.patch)
        weight = b.weight(KERNEL, (self.hidden, 3 * self.patch**2), "conv")
        x = b.conv2d(
            b.reshape(pixels, shape=(1, self.size, self.size, 3)),
            weight,
            kernel=window,
            stride=window,
            padding=(0, 0, 0, 0),
            dilation=(1, 1),
            groups=1,
        )
        x = b.reshape(x, shape=(self.patches, self.hidden))
        own = b.weight(f"{TOWER}.embeddings.class_embedding", (self.hidden,), "vector")
        x = b.concat(b.reshape(own, shape=(1, self.hidden)), x, axis=0)
        places = (self.patches + 1, self.hidden)
        x = b.add(x, b.weight(f"{TOWER}.embeddings.position_embedding.weight", places, "vector"))
        x = layer_norm(step, x, f"{TOWER}.pre_layrnorm", self.eps)
        for index in range(self.layers):
            x = self._layer(step, x, f"{TOWER}.encoder.layers.{index}")
        if self.cut:
            x = b.slice(x, axis=0, start=1, stop=self.patches + 1)
        x = b.node(self.projector, linear(step, x, f"{PROJECTOR}.linear_1", self.out, self.bias))
        b.output(linear(step, x, f"{PROJECTOR}.linear_2", self.out, self.bias), "rows")
        return optimize(b.finish(), (*STANDARD, fuse_activations))

    def _layer(self, step: Step, x: Value, name: str) -> Value:
        b, dim = step.builder, self.hidden // self.heads
        count = self.patches + 1
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
        if self.activation == "gelu":
            h = b.gelu(h)
        else:
            h = b.mul(h, b.sigmoid(b.affine(h, scale=_QUICK)))
        return b.node("add", x, linear(step, h, f"{name}.mlp.fc2", self.hidden, True))


@dataclass(frozen=True)
class PatchTensor(FloatTensor):
    """A kernel [out, 3, p, p] as rows of windows, [out, p * p * 3]."""

    base: Checkpoint
    own_name: str
    info: TensorInfo

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape[0], self.info.shape[1] * self.info.shape[2] * self.info.shape[3]

    @property
    def dtype(self) -> str:
        return self.info.dtype

    def read(self, _name: str, rows: slice | None = None) -> NDArray[np.float32]:
        kernels = self.base.read(self.own_name, rows).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(kernels).reshape(len(kernels), -1)


class TextCheckpoint(Checkpoint):
    """The language model's tensors under the names that it has alone, and those of the tower."""

    def __init__(
        self, base: Checkpoint, plain_name: Callable[[str], str], kernel_name: str
    ) -> None:
        self.base, self._kernel_name = base, kernel_name
        self.format, self.path = base.format, base.path
        self.generation, self.tokenizer = base.generation, base.tokenizer
        text = base.config.get("text_config")
        if not isinstance(text, dict):
            raise CheckpointError(f"{base.path}: the configuration has no text_config")
        self.config = {"tie_word_embeddings": False, "model_type": "llama", **text}
        self._names = {plain_name(name): name for name in base.tensors}
        self._tensors = {plain: base.tensors[name] for plain, name in self._names.items()}
        kernel = self._tensors.get(kernel_name)
        if kernel is None or len(kernel.shape) != 4:
            raise CheckpointError(f"{base.path} lacks the kernel of an image's patches")
        self._kernel = PatchTensor(base, self._names[kernel_name], kernel)
        self._tensors[kernel_name] = TensorInfo(self._kernel.shape, kernel.dtype)

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        if name == self._kernel_name:
            return self._kernel.read(name, rows)
        return self.base.read(self._names.get(name, name), rows)

    def read_quantized(self, name: str, rows: slice | None = None) -> QuantizedWeight:
        return self.base.read_quantized(self._names.get(name, name), rows)

    def close(self) -> None:
        self.base.close()


def plain_name(name: str) -> str:
    """
    >>> plain_name("language_model.model.layers.0.mlp.up_proj.weight")
    'model.layers.0.mlp.up_proj.weight'
    >>> plain_name("model.vision_tower.vision_model.pre_layrnorm.bias")
    'vision_tower.pre_layrnorm.bias'
    """
    name = re.sub(r"^model\.(?=language_model\.|vision_tower\.|multi_modal_projector\.)", "", name)
    name = name.removeprefix("language_model.") if "lm_head" in name else name
    name = re.sub(r"^language_model\.(model\.)?", "model.", name)
    return re.sub(r"^vision_tower\.vision_model\.", f"{TOWER}.", name)


def open_llava(checkpoint: Checkpoint) -> tuple[Checkpoint, LlavaTower]:
    """A LLaVA checkpoint as that of its language model, and what sees."""
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    preprocessing = read_json_if_there(folder / "preprocessor_config.json") or {}
    return TextCheckpoint(checkpoint, plain_name, KERNEL), LlavaTower(
        checkpoint.config, preprocessing
    )
