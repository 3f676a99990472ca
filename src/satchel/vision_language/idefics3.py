"""Idefics3 and SmolVLM: SigLIP's tower, neighbouring patches joined, before a language model.

An image is cut into tiles of the tower's size, which ``see`` makes rows of one by one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.jsonfile import read_json_if_there
from satchel.errors import CheckpointError, ConfigError, ProgramFormatError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Value
from satchel.graph.passes import STANDARD, optimize
from satchel.graph.passes.fusion import fuse_activations
from satchel.models.base import Step, layer_norm, linear
from satchel.models.config import ConfigReader
from satchel.program.names import SEE_METHOD
from satchel.vision_language.llava import TextCheckpoint
from satchel.vision_language.preprocess import Frames, normalized, one_by_one
from satchel.vision_language.shown import View

IDEFICS3, SMOLVLM = "idefics3", "smolvlm"  # the model_types
TOWER, CONNECTOR = "vision_model", "connector"
KERNEL = f"{TOWER}.embeddings.patch_embedding.weight"
# Patches on a side of a tile for which each has its own place. The model finds places by comparing
# fractions in 32 bits, which for other numbers depends on how they are rounded.
SIDES = (2, 4, 8, 14, 16, 24, 26, 27, 32, 64)
_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"
_LARGEST = 4096  # pixels of a side
_LANCZOS = 1  # Pillow's number


@dataclass(frozen=True)
class TilePreprocessing:
    """Scale the longer side, round both up to whole tiles, cut these out; then the whole, small."""

    longest: int
    tile: int
    split: bool = True
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resample: int = _LANCZOS

    def __post_init__(self) -> None:
        fits = all(isinstance(n, int) and 0 < n <= _LARGEST for n in (self.longest, self.tile))
        fits = fits and len(self.mean) == len(self.std) == 3 and all(s > 0 for s in self.std)
        if not fits or self.resample not in range(6):
            raise ProgramFormatError(f"the preprocessing {asdict(self)} is not possible")

    @staticmethod
    def from_processor(config: Mapping[str, Any], size: int) -> TilePreprocessing:
        """From preprocessor_config.json, whose fields may be absent; ``size`` is the model's."""
        for name in ("do_resize", "do_rescale", "do_normalize"):
            if config.get(name) is False:
                raise CheckpointError(
                    f"preprocessor_config.json: {name} is false, and must be true"
                )
        longest = (config.get("size") or {}).get("longest_edge", 4 * size)
        tile = (config.get("max_image_size") or {}).get("longest_edge", size)
        if tile != size:
            raise CheckpointError(
                f"preprocessor_config.json has tiles of {tile}, and the model sees {size} x {size}"
            )
        half = (0.5, 0.5, 0.5)
        return TilePreprocessing(
            longest,
            tile,
            config.get("do_image_splitting", True) is not False,
            tuple(config.get("image_mean") or half),
            tuple(config.get("image_std") or half),
            config.get("resample", _LANCZOS),
        )

    @staticmethod
    def from_dict(parts: Mapping[str, Any]) -> TilePreprocessing:
        try:
            fixed: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in parts.items()
            }
            return TilePreprocessing(**fixed)
        except TypeError as error:
            raise ProgramFormatError(f"the preprocessing is damaged: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def frames(self, image: Any) -> Frames:
        """All tiles of an image, and the whole of it in the size of one."""
        picture = image.convert("RGB")
        picture = self._resized(picture, *self._scaled(*picture.size))
        tile, rows, columns = self.tile, 0, 0
        parts = []
        if self.split:
            picture = self._resized(picture, *self._in_tiles(*picture.size))
            width, height = picture.size
            if width > tile or height > tile:
                rows, columns = height // tile, width // tile
                for top in range(0, height, tile):
                    for left in range(0, width, tile):
                        parts.append(picture.crop((left, top, left + tile, top + tile)))
                picture = self._resized(picture, tile, tile)
        else:
            picture = self._resized(picture, tile, tile)
        pixels = [normalized(np.asarray(part), self.mean, self.std) for part in (*parts, picture)]
        return Frames(pixels, rows, columns)

    def text_of(self, frames: Frames, mark: str) -> str:
        """A mark for each tile, with its place, line by line, and one for the whole."""
        lines = [
            "".join(
                f"{_AROUND}<row_{row + 1}_col_{column + 1}>{mark}"
                for column in range(frames.columns)
            )
            + "\n"
            for row in range(frames.rows)
        ]
        tiles = "".join(lines) + "\n" if lines else ""
        return f"{tiles}{_AROUND}{_WHOLE}{mark}{_AROUND}"

    def views(self, frames: Frames, rows: int) -> list[View]:
        return one_by_one(frames, rows)

    def _resized(self, picture: Any, width: int, height: int) -> Any:
        return picture.resize((width, height), resample=self.resample)

    def _scaled(self, width: int, height: int) -> tuple[int, int]:
        """The longer side is ``longest``; the other is even."""
        ratio = width / height
        if width >= height:
            width = self.longest
            height = int(width / ratio)
            height += height % 2
        else:
            height = self.longest
            width = int(height * ratio)
            width += width % 2
        return max(width, 1), max(height, 1)

    def _in_tiles(self, width: int, height: int) -> tuple[int, int]:
        ratio, tile = width / height, self.tile
        if width >= height:
            width = math.ceil(width / tile) * tile
            height = math.ceil(int(width / ratio) / tile) * tile
        else:
            height = math.ceil(height / tile) * tile
            width = math.ceil(int(height * ratio) / tile) * tile
        return width, height


class Idefics3Tower:
    """The part of a configuration that sees."""

    parts = (TOWER, CONNECTOR)
    unused_tensors = ()

    def __init__(self, config: Mapping[str, Any], preprocessing: Mapping[str, Any]) -> None:
        vision, text = config.get("vision_config"), config.get("text_config")
        if not isinstance(vision, dict) or not isinstance(text, dict):
            raise ConfigError("the configuration has no vision_config and text_config")
        fields = ConfigReader(vision)
        self.hidden = fields.positive("hidden_size", 1152)
        self.heads = fields.positive("num_attention_heads", 16)
        self.ffn = fields.positive("intermediate_size", 3072)
        self.layers = fields.positive("num_hidden_layers", 12)
        self.size = fields.positive("image_size", 224)
        self.patch = fields.positive("patch_size", 32)
        self.eps = fields.number("layer_norm_eps", 1e-6)
        self.activation = fields.activation("hidden_act", "gelu_pytorch_tanh")
        fields.only("num_channels", 3)
        for name in ("max_image_size", "size", "tie_word_embeddings", "use_base_siglip"):
            fields.optional(name)
        fields.finish()
        self.scale = ConfigReader(config).positive("scale_factor", 2)
        self.out = ConfigReader(text).positive("hidden_size", 4096)
        self.side = self.size // self.patch
        if self.side not in SIDES:
            raise ConfigError(
                f"tiles of {self.side} x {self.side} patches are not supported",
                f"Tiles may have {', '.join(map(str, SIDES))} patches on a side.",
            )
        if self.side % self.scale or self.hidden % self.heads:
            raise ConfigError("the vision tower's configuration is not supported")
        self.token = ConfigReader(config).integer("image_token_id", 128257)
        self.preprocessing = TilePreprocessing.from_processor(preprocessing, self.size)

    @property
    def rows(self) -> int:
        """That a tile takes in a prompt."""
        return (self.side // self.scale) ** 2

    def describe(self) -> dict[str, Any]:
        return {
            "kind": IDEFICS3,
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
        window, count = (self.patch, self.patch), self.side**2
        x = b.conv2d(
            b.reshape(pixels, shape=(1, self.size, self.size, 3)),
            b.weight(KERNEL, (self.hidden, 3 * self.patch**2), "conv"),
            b.weight(KERNEL.replace(".weight", ".bias"), (self.hidden,), "vector"),
            kernel=window,
            stride=window,
            padding=(0, 0, 0, 0),
            dilation=(1, 1),
            groups=1,
        )
        x = b.reshape(x, shape=(count, self.hidden))
        table = f"{TOWER}.embeddings.position_embedding.weight"
        places = b.weight(table, (count, self.hidden), "vector")
        x = b.add(x, places)
        for index in range(self.layers):
            x = self._layer(step, x, f"{TOWER}.encoder.layers.{index}")
        x = layer_norm(step, x, f"{TOWER}.post_layernorm", self.eps)
        x = self._joined(b, x)
        b.output(linear(step, x, f"{CONNECTOR}.modality_projection.proj", self.out), "rows")
        return optimize(b.finish(), (*STANDARD, fuse_activations))

    def _joined(self, b: GraphBuilder, x: Value) -> Value:
        """Squares of ``scale`` x ``scale`` patches as one row each."""
        side, s, width = self.side, self.scale, self.hidden
        x = b.reshape(x, shape=(side, side // s, width * s))
        x = b.transpose(x, perm=(1, 0, 2))
        x = b.reshape(x, shape=(side // s, side // s, width * s * s))
        x = b.transpose(x, perm=(1, 0, 2))
        return b.node("reshape", x, shape=(self.rows, width * s * s))

    def _layer(self, step: Step, x: Value, name: str) -> Value:
        b, dim, count = step.builder, self.hidden // self.heads, self.side**2
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
        h = b.node(self.activation, linear(step, h, f"{name}.mlp.fc1", self.ffn, True))
        return b.node("add", x, linear(step, h, f"{name}.mlp.fc2", self.hidden, True))


def plain_name(name: str) -> str:
    """
    >>> plain_name("model.text_model.layers.0.mlp.up_proj.weight")
    'model.layers.0.mlp.up_proj.weight'
    >>> plain_name("model.vision_model.post_layernorm.bias")
    'vision_model.post_layernorm.bias'
    """
    name = re.sub(r"^model\.(?=vision_model\.|connector\.)", "", name)
    return re.sub(r"^model\.text_model\.", "model.", name)


def open_idefics3(checkpoint: Checkpoint) -> tuple[Checkpoint, Idefics3Tower]:
    """A checkpoint of Idefics3 or SmolVLM as that of its language model, and what sees."""
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    preprocessing = read_json_if_there(folder / "preprocessor_config.json") or {}
    tower = Idefics3Tower(checkpoint.config, preprocessing)
    text = TextCheckpoint(checkpoint, plain_name, KERNEL)
    text.config["tie_word_embeddings"] = "lm_head.weight" not in text.tensors
    return text, tower
