"""Models that see, of which only the language model is read: it answers texts, not images."""

from __future__ import annotations

from typing import Any

from satchel.checkpoints.base import Checkpoint
from satchel.remarks import remark
from satchel.vision_language.llava import PROJECTOR, TOWER, plain_name
from satchel.vision_language.text_checkpoint import TextCheckpoint

# By model_type: what the configuration of the language model leaves out, if it is as usual.
TEXT_ONLY: dict[str, dict[str, Any]] = {
    "gemma3": {
        "model_type": "gemma3_text",
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "mistral3": {"model_type": "mistral"},
}
_SEEING = (f"{TOWER}.", f"{PROJECTOR}.")


def open_text(checkpoint: Checkpoint) -> TextCheckpoint:
    """The language model of a checkpoint, without what sees."""

    def name_of_text(name: str) -> str:
        plain = plain_name(name)
        return "" if plain.startswith(_SEEING) else plain

    kind = str(checkpoint.config["model_type"])
    text = TextCheckpoint(checkpoint, name_of_text)
    left_out = dict(TEXT_ONLY[kind])
    embedding = text.tensors.get("model.embed_tokens.weight")
    if embedding is not None and embedding.shape:
        left_out["vocab_size"] = embedding.shape[0]
    text.config = left_out | checkpoint.config["text_config"]
    text.config["tie_word_embeddings"] = "lm_head.weight" not in text.tensors
    remark(f"Of this {kind} model only the language model is taken: it will not see images.")
    return text
