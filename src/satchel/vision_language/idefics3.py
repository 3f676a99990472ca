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
from satchel.errors import CheckpointError, ConfigError, ProgramFormatError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph, Value
from satchel.models.base import layer_norm, linear
from satchel.models.config import ConfigReader
from satchel.vision_language.encoder import finished_graph, siglip
from satchel.vision_language.preprocess import (
    HALF,
    Frames,
    edges,
    in_rgb,
    normalized,
    one_by_one,
    require_usual,
    resized,
)
from satchel.vision_language.shown import View
from satchel.vision_language.text_checkpoint import TextCheckpoint, configs, read_processor

IDEFICS3, SMOLVLM = "idefics3", "smolvlm"  # the model_types
TOWER, CONNECTOR = "vision_model", "connector"
USUAL = {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32}
# What the configurations of the published models' decoders have of training and of other models.
_UNUSED = ("neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor")
_NEVER = ("qk_layer_norms", "use_resampler")
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
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF
    resample: int = _LANCZOS

    def __post_init__(self) -> None:
        fits = all(isinstance(n, int) and 0 < n <= _LARGEST for n in (self.longest, self.tile))
        fits = fits and len(self.mean) == len(self.std) == 3 and all(s > 0 for s in self.std)
        if not fits or self.resample not in range(6):
            raise ProgramFormatError(f"the preprocessing {asdict(self)} is not possible")

    @staticmethod
    def from_processor(config: Mapping[str, Any], size: int) -> TilePreprocessing:
        """From preprocessor_config.json, whose fields may be absent; ``size`` is the model's."""
        require_usual(config, ("do_resize", "do_rescale", "do_normalize"))
        longest = edges(config, "size").get("longest_edge", 4 * size)
        tile = edges(config, "max_image_size").get("longest_edge", size)
        if tile != size:
            raise CheckpointError(
                f"preprocessor_config.json has tiles of {tile}, and the model sees {size} x {size}"
            )
        return TilePreprocessing(
            longest,
            tile,
            config.get("do_image_splitting", True) is not False,
            tuple(config.get("image_mean") or HALF),
            tuple(config.get("image_std") or HALF),
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

    def frames(self, image: Any, among: int = 1) -> Frames:
        """All tiles of an image, and the whole of it in the size of one."""
        picture = in_rgb(image)
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
        return resized(picture, (width, height), self.resample)

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

    kind = IDEFICS3
    parts = (TOWER, CONNECTOR)
    unused_tensors = ()

    def __init__(self, config: Mapping[str, Any], processor: Mapping[str, Any]) -> None:
        vision, text = configs(config)
        self.encoder = siglip(vision, TOWER, **USUAL)
        self.scale = ConfigReader(config).positive("scale_factor", 2)
        self.out = ConfigReader(text).positive("hidden_size")
        side = self.encoder.side
        if side not in SIDES:
            raise ConfigError(
                f"tiles of {side} x {side} patches are not supported",
                f"Tiles may have {', '.join(map(str, SIDES))} patches on a side.",
            )
        if side % self.scale:
            raise ConfigError("the vision tower's configuration is not supported")
        self.token = ConfigReader(config).integer("image_token_id", 128257)
        self.preprocessing = TilePreprocessing.from_processor(processor, self.encoder.size)

    @property
    def rows(self) -> int:
        """That a tile takes in a prompt."""
        return (self.encoder.side // self.scale) ** 2

    def see(self) -> Graph:
        """pixels [size, size, 3] -> rows [rows, hidden of the language model]"""
        step, x = self.encoder.begin()
        x = layer_norm(step, x, f"{TOWER}.post_layernorm", self.encoder.eps)
        x = self._joined(step.builder, x)
        return finished_graph(
            step, linear(step, x, f"{CONNECTOR}.modality_projection.proj", self.out)
        )

    def _joined(self, b: GraphBuilder, x: Value) -> Value:
        """Squares of ``scale`` x ``scale`` patches as one row each."""
        side, s, width = self.encoder.side, self.scale, self.encoder.hidden
        x = b.reshape(x, shape=(side, side // s, width * s))
        x = b.transpose(x, perm=(1, 0, 2))
        x = b.reshape(x, shape=(side // s, side // s, width * s * s))
        x = b.transpose(x, perm=(1, 0, 2))
        return b.node("reshape", x, shape=(self.rows, width * s * s))


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
    tower = Idefics3Tower(checkpoint.config, read_processor(checkpoint))
    text = TextCheckpoint(checkpoint, plain_name, tower.encoder.kernel)
    for name in _NEVER:
        ConfigReader(text.config).only(name, False)
    text.config = {k: v for k, v in text.config.items() if k not in (*_UNUSED, *_NEVER)}
    text.config["tie_word_embeddings"] = "lm_head.weight" not in text.tensors
    return text, tower
