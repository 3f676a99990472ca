"""Models that see, of which only the language model is read: it answers texts, not images."""

from __future__ import annotations

from satchel.checkpoints.base import Checkpoint
from satchel.remarks import remark
from satchel.vision_language.llava import PROJECTOR, TOWER, plain_name
from satchel.vision_language.text_checkpoint import TextCheckpoint

TEXT_ONLY = ("gemma3", "mistral3")  # the model_types
_SEEING = (f"{TOWER}.", f"{PROJECTOR}.")


def open_text(checkpoint: Checkpoint) -> TextCheckpoint:
    """The language model of a checkpoint, without what sees."""

    def name_of_text(name: str) -> str:
        plain = plain_name(name)
        return "" if plain.startswith(_SEEING) else plain

    kind = str(checkpoint.config["model_type"])
    text = TextCheckpoint(checkpoint, name_of_text)
    embedding = text.tensors.get("model.embed_tokens.weight")
    given = checkpoint.config["text_config"]
    if embedding is not None and embedding.shape and "vocab_size" not in given:
        text.config["vocab_size"] = embedding.shape[0]
    text.config["tie_word_embeddings"] = "lm_head.weight" not in text.tensors
    remark(f"Of this {kind} model only the language model is taken: it will not see images.")
    return text
