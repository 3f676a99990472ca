"""Configurations: older and newer ones, real sizes, and mistakes that must be named."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from huggingface_hub.errors import StrictDataclassError

from models.model_rows import GPT_NEOX, LAYER_NORMS, ROWS, ModelRow
from satchel.errors import ConfigError, SatchelError, UnsupportedModelError
from satchel.models import architectures, build_model
from satchel.sources import CATALOG
from support.real_configs import REAL_CONFIGS, real_config
from support.tiny_models import BASE

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "model_configs"
# Fields that a toolkit added to its copies of the configurations.
ADDED = {"tokenizer", "mask_value"}


def graph_text(config: dict[str, Any], context: int = 8192) -> str:
    """The whole graph of a configuration; a constant's name tells its content."""
    return str(build_model(config).method("kv_forward", 1, context))


def filled_config(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What transformers writes when it has read this."""
    transformers.AutoConfig.for_model(**deepcopy(config)).save_pretrained(folder)
    filled: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return filled


def parameters(config: dict[str, Any]) -> int:
    weights = build_model(config).method("kv_forward", 1, 64).weights()
    return sum(int(np.prod(weight.shape)) for weight in weights)


@pytest.mark.parametrize("name", CATALOG)
def test_real_sizes_give_the_parameters_of_the_catalogue(name: str) -> None:
    model = build_model(real_config(name))
    assert parameters(real_config(name)) == CATALOG[name].parameters
    assert model.context == CATALOG[name].context


OLDER: dict[str, dict[str, Any]] = {
    **{name: config for name, config in REAL_CONFIGS.items() if config["model_type"] != "codegen"},
    "qwen2, window on": REAL_CONFIGS["qwen2_5-0_5b"]
    | {"use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 20},
    "smollm3, window on": REAL_CONFIGS["smollm3-3b"]
    | {"use_sliding_window": True, "sliding_window": 1024},
    "gemma3, scaled": REAL_CONFIGS["gemma3-1b"]
    | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 3},
    "glm, partial": REAL_CONFIGS["glm-edge-1_5b"] | {"partial_rotary_factor": 0.5},
}


@pytest.mark.parametrize("name", OLDER)
def test_older_configs_mean_what_transformers_makes_of_them(tmp_path: Path, name: str) -> None:
    """Old fields (rope_theta, sliding_window_pattern, …) against the new ones that it writes."""
    assert graph_text(OLDER[name]) == graph_text(filled_config(OLDER[name], tmp_path))


def test_configs_found_elsewhere_are_understood() -> None:
    if not SHARED.is_dir():
        pytest.skip("configurations (../shared/data/model_configs) are not here")
    built = {}
    for path in sorted(SHARED.glob("*.json")):
        config = json.loads(path.read_text())
        if config.get("model_type") in architectures():
            clean = {name: value for name, value in config.items() if name not in ADDED}
            built[path.stem] = parameters(clean)
    named = {
        "mlc_llama3_2_1b": "llama3_2-1b",
        "mlc_llama3_2_3b": "llama3_2-3b",
        "mlc_gemma_2b": "gemma-2b",
        "mlc_gemma2_2b": "gemma2-2b",
        "mlc_gemma3_1b_it": "gemma3-1b",
        "mlc_qwen3_0.6b": "qwen3-0_6b",
        "mlc_qwen3_1.7b": "qwen3-1_7b",
        "mlc_smollm2_135m": "smollm2-135m",
        "mlc_smollm2_360m": "smollm2-360m",
        "executorch_mtk_Qwen2.5-0.5B-Instruct_config": "qwen2_5-0_5b",
        "executorch_mtk_Qwen3-4B_config": "qwen3-4b",
        "executorch_mtk_gemma2_2b_it_config": "gemma2-2b",
    }
    assert {file: built[file] for file in named} == {
        file: CATALOG[name].parameters for file, name in named.items()
    }


def test_phi_4_mini_as_found_elsewhere_has_its_factors() -> None:
    path = SHARED / "mlc_phi-4.json"
    if not path.is_file():
        pytest.skip("configurations (../shared/data/model_configs) are not here")
    config = json.loads(path.read_text())
    rope = build_model(config).rope  # type: ignore[attr-defined]
    assert rope.dim == 96 and rope.scale == pytest.approx(1.1902, abs=1e-4)
    assert (rope.frequencies(4096) != rope.frequencies(4097)).sum() == 47  # the first is by 1


# As published, with the fields that say nothing of what is computed.
ODD_FIELDS: dict[str, dict[str, Any]] = {
    "dolly": {
        "model_type": "gpt_neox",
        **GPT_NEOX,
        "custom_pipelines": {"text-generation": {"impl": "instruct_pipeline.Pipeline"}},
        "num_steps": "global_step213000",  # in Polyglot's
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
    },
    "exaone4": {
        "model_type": "exaone4",
        "sliding_window": 24,
        "sliding_window_pattern": "LLLG",
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "num_hidden_layers": 4,
        "rope_scaling": None,
        "rope_theta": 1000000,
    },
    "command-r": {
        "model_type": "cohere",
        **LAYER_NORMS,
        "model_max_length": 512,
        "rope_theta": 8e6,
    },
}


@pytest.mark.parametrize("name", ODD_FIELDS)
def test_odd_fields_of_published_configurations(tmp_path: Path, name: str) -> None:
    config = {**BASE, **ODD_FIELDS[name]}
    assert graph_text(config) == graph_text(filled_config(config, tmp_path))


def test_a_word_says_which_layers_of_exaone_slide() -> None:
    config = {**BASE, **ODD_FIELDS["exaone4"]}
    listed = config.pop("layer_types")
    assert graph_text(config) == graph_text(config | {"layer_types": listed})
    with pytest.raises(ConfigError, match="'LLLX' is not made of L and G"):
        build_model(config | {"sliding_window_pattern": "LLLX"})


def test_command_r_has_the_longer_of_two_contexts() -> None:
    config = {**BASE, **ODD_FIELDS["command-r"], "max_position_embeddings": 64}
    assert build_model(config | {"model_max_length": 512}).context == 512
    assert build_model(config | {"model_max_length": 32}).context == 64
    assert build_model(config | {"model_max_length": 10**30}).context == 64


@pytest.mark.parametrize(
    "name", {c["model_type"]: name for name, c in REAL_CONFIGS.items()}.values()
)
def test_a_field_that_is_not_understood_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"the field 'logit_bias' of this \w+ model is not"):
        build_model(real_config(name) | {"logit_bias": 1.0})


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("gemma2-2b", {"layer_types": ["full_attention"]}, "'layer_types' must be a list of 26"),
    ("gemma2-2b", {"layer_types": ["mamba"] * 26}, "layers of the type 'mamba'"),
    ("gemma2-2b", {"sliding_window": None}, "there is no sliding window"),
    ("gemma3-1b", {"attn_logit_softcapping": 5.0}, "'attn_logit_softcapping' is 5.0"),
    ("gemma3-1b", {"rope_parameters": {"rope_theta": 5.0}}, "the field 'rope_theta' of 'rope_para"),
    ("gemma-2b", {"hidden_activation": "gelu"}, "'hidden_activation' is 'gelu'"),
    ("qwen2_5-0_5b", {"num_key_value_heads": 3}, "14 attention heads cannot share 3"),
    ("qwen3-0_6b", {"hidden_act": "relu6"}, "'hidden_act' is 'relu6', and only 'silu'"),
    ("codegen2-1b", {"head_dim": 64}, r"'head_dim' is 64, and n_embd / n_head 128"),
    ("codegen2-1b", {"mp_num": 3}, "16 heads do not lie in 3 blocks"),
    ("smollm3-3b", {"no_rope_layers": [1, 0]}, "'no_rope_layers' has 2 numbers, and 36"),
    ("smollm3-3b", {"no_rope_layers": "all"}, "'no_rope_layers' must be a list of numbers"),
    ("granite3_3-2b", {"logits_scaling": 0}, "'logits_scaling' must be above zero"),
    ("phi4-mini", {"partial_rotary_factor": 1.5}, "'partial_rotary_factor' 1.5 is not supported"),
    ("glm-edge-1_5b", {"partial_rotary_factor": 0.0}, "'partial_rotary_factor' must be a positive"),
    ("phi4-mini", {"partial_rotary_factor": 0.5}, "'short_factor' must be a list of 32 numbers"),
    (
        "llama3_2-1b",
        {"rope_scaling": {"partial_rotary_factor": 0.5}},
        "'partial_rotary_factor' 0.5",
    ),
    ("llama3_2-1b", {"rope_scaling": {"rope_type": "su"}}, "of the type 'su' is not supported"),
    ("llama3_2-1b", {"rope_scaling": "linear"}, "must be a dictionary, not 'linear'"),
    ("llama3_2-1b", {"rope_scaling": {"beta": 1}}, "rotary scaling field 'beta' is not understood"),
    ("llama3_2-1b", {"head_dim": 63}, "63 values cannot be rotated"),
]


@pytest.mark.parametrize(("name", "changes", "message"), MISTAKES)
def test_a_wrong_field_is_named(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(real_config(name) | changes)


def test_a_longrope_factor_of_zero_is_refused() -> None:
    scaling = {"type": "longrope", "short_factor": [0.0] * 48, "long_factor": [1.0] * 48}
    with pytest.raises(ConfigError, match="'short_factor' has a value that is not above zero"):
        build_model(real_config("phi4-mini") | {"rope_scaling": scaling})


def test_an_unknown_architecture_gives_those_there_are() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.*arcee, codegen, cohere, cohere2"):
        build_model({"model_type": "mamba"})


# Where a default differs, the tensors do not fit, and the export says so.
TOLD_BY_TENSORS = {
    *("attention_bias", "mlp_bias", "use_bias", "use_qkv_bias", "tie_word_embeddings"),
    *("head_dim", "num_key_value_heads", "decoder_sparse_step", "mlp_only_layers"),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_field_that_is_left_out_means_what_transformers_takes(
    tmp_path: Path, row: ModelRow
) -> None:
    """A tiny configuration without one field, and what transformers writes when it reads that."""
    given = filled_config({"model_type": row.model_type, **BASE, **row.config}, tmp_path)
    compared = []
    for field in given.keys() - TOLD_BY_TENSORS - {"model_type"}:
        without = {name: value for name, value in given.items() if name != field}
        try:
            filled = filled_config(without, tmp_path)
            graph = graph_text(without, 64)
        except (ValueError, StrictDataclassError, SatchelError, ZeroDivisionError):
            # It must be there, for either (transformers' EXAONE divides by a pattern of 0).
            continue
        assert graph == graph_text(filled, 64), field
        compared.append(field)
    assert compared
