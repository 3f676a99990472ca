"""Configurations: what a model file reads, and what it refuses to guess."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from satchel.errors import ConfigError, UnsupportedModelError
from satchel.graph.ir import Sym
from satchel.models import architectures, build_model
from satchel.models.config import ConfigReader, without_fields
from satchel.models.rope import read_rope
from satchel.remarks import Remark

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def test_an_unknown_architecture_is_named_with_those_that_exist() -> None:
    assert "llama" in architectures()
    with pytest.raises(UnsupportedModelError, match="architecture 'mamba'.*Supported: .*llama"):
        build_model({"model_type": "mamba"})
    with pytest.raises(UnsupportedModelError, match="none given"):
        build_model({})


@pytest.mark.parametrize("helper", ["base", "config", "rope", "__init__", "llama.py"])
def test_a_helper_is_not_an_architecture(helper: str) -> None:
    with pytest.raises(UnsupportedModelError):
        build_model({"model_type": helper})


def test_defaults_of_llama() -> None:
    model = build_model(LLAMA)
    assert (model.vocab_size, model.hidden, model.layers, model.context) == (32, 16, 1, 2048)
    assert not model.tied
    graph = model.method("kv_forward", 1, 8)
    assert {w.name: w.shape for w in graph.weights()}["model.layers.0.self_attn.k_proj.weight"] == (
        16,
        16,
    )


def test_methods_and_their_inputs() -> None:
    model = build_model(LLAMA)
    kv, prefill = model.method("kv_forward", 1, 8), model.method("p", Sym("S", 4), 8)
    assert [str(v.type) for v in kv.inputs] == ["i32[1]"] * 3
    types = {v.name: str(v.type) for v in prefill.inputs}
    assert types == {"rows": "i32[L≤4]"} | dict.fromkeys(
        ("tokens", "position", "sequence"), "i32[S≤4]"
    )
    assert kv.caches == set(kv.states)
    assert str(kv.outputs[0]) == "%logits: f32[1, 32]"
    assert str(prefill.outputs[0]) == "%logits: f32[L≤4, 32]"
    assert kv.states == prefill.states
    assert [w.name for w in kv.weights()] == [w.name for w in prefill.weights()]
    assert sum(node.op == "rope_table" for node in kv.nodes) == 1  # shared by q, k and all layers


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "has no 'hidden_size'"),
        ({"hidden_size": 0}, "'hidden_size' must be at least 1"),
        ({"hidden_size": -4}, "'hidden_size' must be a whole number"),
        ({"hidden_size": 16.0}, "'hidden_size' must be a whole number"),
        ({"hidden_size": True}, "'hidden_size' must be a whole number"),
        ({"rms_norm_eps": "small"}, "'rms_norm_eps' must be a number"),
        ({"tie_word_embeddings": 1}, "'tie_word_embeddings' must be true or false"),
        ({"hidden_act": "relu6"}, "'hidden_act' is 'relu6', and only 'silu' or .*'relu'"),
        ({"sliding_window": 128}, "the field 'sliding_window' .* is not understood"),
        ({"rope_parameters": {"rope_type": "su"}}, "type 'su' is not supported"),
        ({"rope_parameters": {"colour": 1}}, "field 'colour' is not understood"),
        ({"rope_scaling": {"type": "linear"}}, "'factor' must be a positive number"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "'factor' must be a positive number"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                }
            },
            "'high_freq_factor' must be larger",
        ),
    ],
)
def test_what_llama_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model({**LLAMA, **change})


def test_a_misspelt_field_gets_a_suggestion() -> None:
    config = {**LLAMA, "hiden_size": 16}
    del config["hidden_size"]
    with pytest.raises(ConfigError, match="Is 'hiden_size' meant"):
        build_model(config)


def test_fields_that_are_null_or_harmless_are_ignored() -> None:
    build_model({**LLAMA, "sliding_window": None, "torch_dtype": "bfloat16", "use_cache": True})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("unsloth_fixed", True),
        ("unsloth_version", "2025.3"),
        ("_attn_implementation_autoset", True),
        ("_flash_attn_2_enabled", True),
        ("temperature", 0.6),
        ("max_length", 4096),
        ("mlx_version", "0.21"),
        ("embd_pdrop", 0.1),
    ],
)
def test_fields_that_compute_nothing_are_told_and_ignored(field: str, value: Any) -> None:
    with pytest.warns(Remark, match=f"computes nothing: {field}"):
        build_model({**LLAMA, field: value})


def test_fields_that_someone_answers_for_are_left_out() -> None:
    config = {**LLAMA, "sliding_window": 128}
    build_model(without_fields(config, ["sliding_window"]))
    with pytest.raises(ConfigError, match="no field 'window' that could be ignored"):
        without_fields(config, ["window"])


def test_a_scaling_that_says_how_far_it_reaches_extends_the_context() -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    assert build_model({**LLAMA, "rope_scaling": yarn}).context == 8192
    dynamic = {"type": "dynamic", "factor": 3.0}
    assert build_model({**LLAMA, "rope_scaling": dynamic}).context == 6144


@pytest.mark.parametrize("model_max", [64, 4096])
@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 4.0},
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ],
    ids=lambda scaling: scaling["rope_type"],
)
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("nested", [True, False])
def test_frequencies_are_those_of_transformers(
    model_max: int, scaling: dict[str, Any], theta: float, nested: bool
) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    theirs = LlamaRotaryEmbedding(
        LlamaConfig(
            hidden_size=128,
            num_attention_heads=2,
            max_position_embeddings=model_max,
            rope_parameters={**scaling, "rope_theta": theta},
        )
    )
    written = (
        {"rope_parameters": {**scaling, "rope_theta": theta}}
        if nested
        else {"rope_theta": theta, "rope_scaling": scaling}
    )
    mine = read_rope(ConfigReader(written), 64)
    assert mine.scale == theirs.attention_scaling
    np.testing.assert_allclose(mine.inverse_frequencies, theirs.inv_freq.numpy(), rtol=1e-6)
