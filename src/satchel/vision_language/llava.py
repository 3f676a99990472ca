"""LLaVA-1.5, NeXT and OneVision: a vision tower and a projector before a language model.

``see`` makes of a frame the rows that stand for it among the embeddings of a prompt. NeXT and
OneVision see an image in tiles too, with a learned row at the end of each line of patches: ``see``
gives that one last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from satchel.checkpoints.base import Checkpoint
from satchel.errors import ConfigError
from satchel.graph.ir import Graph
from satchel.models.base import linear
from satchel.models.config import ConfigReader
from satchel.vision_language.encoder import clip, finished_graph, siglip
from satchel.vision_language.grid import GridPreprocessing
from satchel.vision_language.preprocess import ClipPreprocessing
from satchel.vision_language.text_checkpoint import TextCheckpoint, configs, read_processor

LLAVA, LLAVA_NEXT, LLAVA_ONEVISION = "llava", "llava_next", "llava_onevision"  # the model_types
TOWER, PROJECTOR, NEWLINE = "vision_tower", "multi_modal_projector", "image_newline"
_ENCODERS = {"clip_vision_model": clip, "siglip_vision_model": siglip}


class LlavaTower:
    """The part of a configuration that sees."""

    parts = (TOWER, PROJECTOR)

    def __init__(self, config: Mapping[str, Any], processor: Mapping[str, Any]) -> None:
        vision, text = configs(config)
        self.kind = str(config.get("model_type", LLAVA))
        one = self.kind == LLAVA_ONEVISION
        seeing = str(vision.get("model_type") or ("siglip" if one else "clip") + "_vision_model")
        read = _ENCODERS.get(seeing)
        if read is None:
            raise ConfigError(f"images are seen by CLIP or SigLIP, not by {seeing!r}")
        chosen = config.get("vision_feature_layer", -1 if one else -2)
        if not isinstance(chosen, int):
            raise ConfigError("several vision_feature_layer are not supported")
        self.encoder = read(vision, TOWER).up_to(chosen)
        strategy = config.get("vision_feature_select_strategy", "full" if one else "default")
        self.cut = strategy == "default"  # CLIP's own row is left out
        self.out = ConfigReader(text).positive("hidden_size")
        self.projector = {"gelu": "gelu"}.get(config.get("projector_hidden_act", "gelu"), "")
        if not self.projector or (self.cut and not self.encoder.is_clip):
            raise ConfigError("the vision tower's configuration is not supported")
        self.bias = bool(config.get("multimodal_projector_bias", True))
        token = config.get("image_token_index", config.get("image_token_id", 32000))
        if not isinstance(token, int):
            raise ConfigError(f"the image's token is {token!r}")
        self.token = token
        self.preprocessing: ClipPreprocessing | GridPreprocessing
        if self.kind == LLAVA:
            seen, is_clip = self.encoder.size, self.encoder.is_clip
            self.preprocessing = ClipPreprocessing.from_processor(processor, seen, is_clip)
        else:
            if self.rows != self.encoder.patches:
                raise ConfigError("tiles with a row of their own are not supported")
            self.preprocessing = GridPreprocessing.from_processor(processor, config, self.encoder)
        layers = f"{TOWER}.encoder.layers.*"
        self.unused_tensors = (f"{TOWER}.post_layernorm.*", layers, f"{TOWER}.head.*")

    @property
    def rows(self) -> int:
        """That a frame takes in a prompt."""
        return self.encoder.patches + (self.encoder.is_clip and not self.cut)

    def see(self) -> Graph:
        """pixels [size, size, 3] -> rows [rows (and one), hidden of the language model]"""
        step, x = self.encoder.begin()
        b = step.builder
        if self.cut:
            x = b.slice(x, axis=0, start=1, stop=self.encoder.patches + 1)
        x = b.node(self.projector, linear(step, x, f"{PROJECTOR}.linear_1", self.out, self.bias))
        x = linear(step, x, f"{PROJECTOR}.linear_2", self.out, self.bias)
        if self.kind != LLAVA:
            newline = b.reshape(b.weight(NEWLINE, (self.out,), "vector"), shape=(1, self.out))
            x = b.concat(x, newline, axis=0)
        return finished_graph(step, x)


def plain_name(name: str) -> str:
    """
    >>> plain_name("language_model.model.layers.0.mlp.up_proj.weight")
    'model.layers.0.mlp.up_proj.weight'
    >>> plain_name("model.vision_tower.vision_model.pre_layrnorm.bias")
    'vision_tower.pre_layrnorm.bias'
    """
    parts = f"language_model|{TOWER}|{PROJECTOR}"
    name = re.sub(rf"^model\.(?=(?:{parts})\.|{NEWLINE}$)", "", name)
    name = name.removeprefix("language_model.") if "lm_head" in name else name
    name = re.sub(r"^language_model\.(model\.)?", "model.", name)
    return re.sub(r"^vision_tower\.vision_model\.", f"{TOWER}.", name)


def open_llava(checkpoint: Checkpoint) -> tuple[Checkpoint, LlavaTower]:
    """A LLaVA checkpoint as that of its language model, and what sees."""
    tower = LlavaTower(checkpoint.config, read_processor(checkpoint))
    text = TextCheckpoint(checkpoint, plain_name, tower.encoder.kernel)
    text.config["tie_word_embeddings"] = "lm_head.weight" not in text.tensors
    return text, tower
