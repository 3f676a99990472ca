"""The configuration of the language model within a vision-language model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.errors import ConfigError

# The language model's family, where its configuration does not say it.
_FAMILIES = {"llava_onevision": "qwen2", "gemma3": "gemma3_text", "mistral3": "mistral"}
# What a family has unless its configuration says otherwise. transformers stored, of a configuration
# within another, only what is not as usual: LLaVA-1.5's has no hidden_size.
_FIELDS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads"),
)
_USUAL: dict[str, tuple[int, ...]] = {
    "gemma": (256000, 3072, 24576, 28, 16, 16),
    "gemma2": (256000, 2304, 9216, 26, 8, 4),
    "gemma3_text": (262208, 2304, 9216, 26, 8, 4),
    "llama": (32000, 4096, 11008, 32, 32),  # with as many heads of keys and values as of queries
    "mistral": (32000, 4096, 14336, 32, 32, 8),
    "phi3": (32064, 3072, 8192, 32, 32),
    "qwen2": (151936, 4096, 22016, 32, 32, 32),
    "qwen3": (151936, 4096, 22016, 32, 32, 32),
}


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """All of it, with what was left out because it is as usual.

    >>> found = text_config({"model_type": "llava", "text_config": {"vocab_size": 32064}})
    >>> found["model_type"], found["hidden_size"], found["vocab_size"]
    ('llama', 4096, 32064)
    """
    text = config.get("text_config")
    if not isinstance(text, dict):
        raise ConfigError("the configuration has no text_config")
    family = text.get("model_type") or _FAMILIES.get(str(config.get("model_type")), "llama")
    usual = dict(zip(_FIELDS, _USUAL.get(str(family), ()), strict=False))
    return {"tie_word_embeddings": False, "model_type": family, **usual, **text}
