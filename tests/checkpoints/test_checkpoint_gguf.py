"""GGUF: tensors, names, configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from checkpoint_files import arrays, assert_same, tiny_model, write_gguf
from gguf.quants import dequantize, quantize
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from satchel.checkpoints import open_checkpoint
from satchel.errors import CheckpointError

MULTIPLIERS = {
    "attention_multiplier": 0.015625,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}
SCALES = {
    "attention.scale": 0.015625,
    "embedding_scale": 12.0,
    "residual_scale": 0.22,
    "logit_scale": 8.0,
}
GEMMA = {"sliding_window": 32, "query_pre_attn_scalar": 16}
WINDOW = {"attention.sliding_window": 32}
# GGUF's architecture, transformers' model type, its configuration, the same in GGUF's metadata
ARCHITECTURES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("llama", "llama", {"tie_word_embeddings": False}, {"rope.dimension_count": 16}),
    ("qwen2", "qwen2", {}, {}),
    ("qwen3", "qwen3", {"tie_word_embeddings": True}, {}),
    ("gemma", "gemma", {}, {}),
    (
        "gemma2",
        "gemma2",
        {**GEMMA, "attn_logit_softcapping": 40.0},
        {**WINDOW, "attn_logit_softcapping": 40.0},
    ),
    ("gemma3", "gemma3_text", {**GEMMA, "num_hidden_layers": 8}, WINDOW),
    ("phi3", "phi3", {"partial_rotary_factor": 0.75}, {"rope.dimension_count": 12}),
    ("granite", "granite", MULTIPLIERS, SCALES),
    ("smollm3", "smollm3", {"num_hidden_layers": 8}, {}),
]
KNOWN_TO_TRANSFORMERS = {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"}
SPECIAL_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def write(path: Path, architecture: str) -> Any:
    row = next(row for row in ARCHITECTURES if row[0] == architecture)
    _, model_type, changes, metadata = row
    model = tiny_model(model_type, **{**SPECIAL_TOKENS, **changes})
    metadata = {"rope.freq_base": 10000.0, "vocab_size": 40, **metadata}
    write_gguf(path, model, architecture, metadata=metadata)
    return model


every_architecture = pytest.mark.parametrize("architecture", [row[0] for row in ARCHITECTURES])


@every_architecture
def test_tensors_are_those_of_the_original_model(tmp_path: Path, architecture: str) -> None:
    path = tmp_path / "model.gguf"
    model = write(path, architecture)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == "gguf"
        assert_same(checkpoint, arrays(model))
        if architecture in KNOWN_TO_TRANSFORMERS:
            oracle = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
            for name in checkpoint.tensors:
                expected = oracle["tensors"][name].numpy()
                np.testing.assert_array_equal(checkpoint.read(name), expected, err_msg=name)


@every_architecture
def test_config_builds_the_original_model(tmp_path: Path, architecture: str) -> None:
    """The config and the weights that were read give the logits of the original model."""
    path = tmp_path / "model.gguf"
    model = write(path, architecture)
    model_type = model.config.model_type
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.config["model_type"] == model_type
        fields = {**checkpoint.config, **SPECIAL_TOKENS}
        fields.pop("model_type")
        rebuilt = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(model_type, **fields)
        ).eval()
        weights = {name: torch.from_numpy(checkpoint.read(name)) for name in checkpoint.tensors}
        missing, unexpected = rebuilt.load_state_dict(weights, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}
        rebuilt.tie_weights()
    assert rebuilt.config.tie_word_embeddings == model.config.tie_word_embeddings
    tokens = torch.arange(40)[None]  # longer than the sliding windows
    with torch.no_grad():
        torch.testing.assert_close(rebuilt(tokens).logits, model(tokens).logits)


def test_configuration_of_each_family(tmp_path: Path) -> None:
    def config(architecture: str) -> dict[str, Any]:
        write(tmp_path / f"{architecture}.gguf", architecture)
        return open_checkpoint(tmp_path / f"{architecture}.gguf").config

    granite = config("granite")
    assert granite["attention_multiplier"] == 0.015625
    assert granite["embedding_multiplier"] == 12.0
    assert granite["residual_multiplier"] == 0.22  # not 0.2199999988079071
    assert granite["logits_scaling"] == 8.0
    gemma2 = config("gemma2")
    assert gemma2["layer_types"] == ["sliding_attention", "full_attention"]
    assert (gemma2["sliding_window"], gemma2["query_pre_attn_scalar"]) == (32, 16)
    assert (gemma2["attn_logit_softcapping"], gemma2["final_logit_softcapping"]) == (40.0, 30.0)
    gemma3 = config("gemma3")
    assert [kind == "full_attention" for kind in gemma3["layer_types"]].index(True) == 5
    assert gemma3["rope_local_base_freq"] == 10000.0
    phi3 = config("phi3")
    assert phi3["partial_rotary_factor"] == 0.75 and phi3["sliding_window"] is None
    assert config("smollm3")["no_rope_layers"] == [1, 1, 1, 0, 1, 1, 1, 0]


def test_generation_and_tokenizer_come_from_the_metadata(tmp_path: Path) -> None:
    tokens = ["<s>", "▁a", "é"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0, -1.0, -2.5],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "general.sampling.temp": 0.6,
    }
    path = tmp_path / "model.gguf"
    write_gguf(path, tiny_model(), metadata=metadata)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.generation == {"temperature": 0.6, "bos_token_id": 1, "eos_token_id": 2}
        assert checkpoint.tokenizer is not None
        assert (checkpoint.tokenizer.kind, checkpoint.tokenizer.path) == ("gguf", path)
        for key, value in metadata.items():
            if key != "general.sampling.temp":
                assert checkpoint.tokenizer.metadata[key] == value
    write_gguf(path, tiny_model(), metadata={**metadata, "tokenizer.ggml.eot_token_id": 9})
    assert open_checkpoint(path).generation["eos_token_id"] == [2, 9]
    write_gguf(path, tiny_model())
    assert open_checkpoint(path).tokenizer is None


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_number_formats_that_gguf_can_write(tmp_path: Path, kind: str) -> None:
    number = gguf.GGMLQuantizationType[kind]
    model = tiny_model("qwen2")
    write_gguf(tmp_path / "model.gguf", model, "qwen2", kind=kind)
    with open_checkpoint(tmp_path / "model.gguf") as checkpoint:
        for name, values in arrays(model).items():
            expected = values
            if values.ndim > 1:
                assert checkpoint.tensors[name].dtype == kind.lower()
                expected = dequantize(quantize(values, number), number)
            np.testing.assert_array_equal(checkpoint.read(name), expected, err_msg=name)
            part = checkpoint.read(name, slice(7, 23))
            np.testing.assert_array_equal(part, expected[7:23], err_msg=name)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_k_quants_are_read_by_rows(tmp_path: Path, kind: str) -> None:
    """gguf cannot write these: random blocks, with scales that are no infinities."""
    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    rows, columns = 40, 2 * block
    raw = np.random.default_rng(0).integers(0, 256, (rows, 2, size), dtype=np.uint8)
    scales = np.arange(rows * 2, dtype=np.float16).reshape(rows, 2, 1).view(np.uint8)
    if kind == "Q6_K":
        raw[..., -2:] = scales
    else:
        raw[..., :2] = raw[..., 2:4] = scales
    raw = raw.reshape(rows, 2 * size)
    model = tiny_model("qwen2", hidden_size=columns, num_hidden_layers=1)
    embedding = "model.embed_tokens.weight"
    writer_path = tmp_path / "model.gguf"
    original = gguf.GGUFWriter.add_tensor

    def add_tensor(self: Any, name: str, values: Any, **options: Any) -> None:
        if name == "token_embd.weight":
            values, options = raw, {"raw_dtype": number}
        original(self, name, values, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "add_tensor", add_tensor)
        write_gguf(writer_path, model, "qwen2")
    expected = dequantize(raw, number)
    assert np.isfinite(expected).all()
    with open_checkpoint(writer_path) as checkpoint:
        assert checkpoint.tensors[embedding].shape == (rows, columns)
        np.testing.assert_array_equal(checkpoint.read(embedding), expected)
        for start in range(0, rows, 9):
            part = checkpoint.read(embedding, slice(start, start + 9))
            np.testing.assert_array_equal(part, expected[start : start + 9])
        assert_values = arrays(model)["model.norm.weight"]
        np.testing.assert_array_equal(checkpoint.read("model.norm.weight"), assert_values)


def llama3_factors(factor: float, head_dim: int = 64, theta: float = 500000.0) -> Any:
    """The factor of each frequency, by transformers' own function."""
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_theta": theta,
    }
    config = transformers.LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, rope_parameters=scaling
    )
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = theta ** -(torch.arange(0, head_dim, 2) / head_dim)
    return (plain / frequencies).numpy().astype(np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recovered_from_its_factors(tmp_path: Path, factor: float) -> None:
    model = tiny_model(head_dim=64)
    extra = {"rope_freqs.weight": llama3_factors(factor)}
    metadata = {"rope.freq_base": 500000.0}
    path = write_gguf(tmp_path / "model.gguf", model, metadata=metadata, extra=extra)
    with open_checkpoint(path) as checkpoint:
        scaling = checkpoint.config["rope_scaling"]
        assert scaling["rope_type"] == "llama3"
        assert scaling["factor"] == pytest.approx(factor, rel=1e-5)
        assert scaling["original_max_position_embeddings"] == 8192
        assert_same(checkpoint, arrays(model))
    extra["rope_freqs.weight"][5] = 3.0
    write_gguf(path, model, metadata=metadata, extra=extra)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight does not follow Llama 3"):
        open_checkpoint(path)
    write_gguf(path, model, metadata=metadata, extra={"rope_freqs.weight": np.ones(32, "f4")})
    assert open_checkpoint(path).config["rope_scaling"] is None


def test_other_scalings_of_positions(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    model = tiny_model("phi3", **SPECIAL_TOKENS)
    factors = np.array([1.0, 1.1, 2.5, 40.25], np.float32)
    extra = {"rope_factors_long.weight": factors, "rope_factors_short.weight": factors * 0 + 1}
    metadata: dict[str, Any] = {"rope.scaling.original_context_length": 64}
    write_gguf(path, model, "phi3", metadata=metadata, extra=extra)
    config = open_checkpoint(path).config
    assert config["original_max_position_embeddings"] == 64
    assert config["rope_scaling"] == {
        "rope_type": "longrope",
        "long_factor": [1.0, 1.1, 2.5, 40.25],
        "short_factor": [1.0] * 4,
    }
    model = tiny_model()
    metadata = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    write_gguf(path, model, metadata=metadata)
    assert open_checkpoint(path).config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    metadata |= {"rope.scaling.type": "yarn", "rope.scaling.original_context_length": 32}
    write_gguf(path, model, metadata=metadata)
    scaling = open_checkpoint(path).config["rope_scaling"]
    assert scaling["rope_type"] == "yarn" and scaling["original_max_position_embeddings"] == 32
    write_gguf(path, model, metadata={"rope.scaling.type": "longrope"})
    with pytest.raises(CheckpointError, match=r"rope\.scaling\.type is 'longrope'"):
        open_checkpoint(path)


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    path, model = tmp_path / "model.gguf", tiny_model("qwen2")

    def problem(**options: Any) -> str:
        architecture = options.pop("architecture", "qwen2")
        write_gguf(path, model, architecture, **options)
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(path)
        return str(caught.value)

    extra = {"blk.0.ffn_gate_inp.weight": np.ones((4, 32), np.float32)}
    assert "tensor blk.0.ffn_gate_inp.weight has no place" in problem(extra=extra)
    extra = {"rope_freqs.extra.weight": np.ones(4, np.float32)}
    assert "tensor rope_freqs.extra.weight has no place" in problem(extra=extra)
    extra = {"counts": np.ones(4, np.int32)}  # type: ignore[dict-item]
    assert "tensor counts has the type I32" in problem(extra=extra)
    assert "mixture of experts" in problem(metadata={"expert_count": 8})
    assert "one of 3 parts" in problem(metadata={"split.count": 3})


def test_metadata_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, model = tmp_path / "model.gguf", tiny_model()
    monkeypatch.setattr(gguf.GGUFWriter, "add_block_count", lambda self, count: None)
    write_gguf(path, model)
    with pytest.raises(CheckpointError, match=r"key llama\.block_count is missing"):
        open_checkpoint(path)
    write_gguf(path, model, metadata={"block_count": "two"})
    with pytest.raises(CheckpointError, match=r"key llama\.block_count is not a number"):
        open_checkpoint(path)
    monkeypatch.setattr(gguf.GGUFWriter, "add_feed_forward_length", lambda self, count: None)
    write_gguf(path, model, metadata={"block_count": 2, "feed_forward_length": [96, 64]})
    with pytest.raises(CheckpointError, match=r"feed_forward_length differs between layers"):
        open_checkpoint(path)
    write_gguf(path, model, metadata={"block_count": 2, "feed_forward_length": [96, 96]})
    assert open_checkpoint(path).config["intermediate_size"] == 96
    monkeypatch.setattr(gguf.GGUFWriter, "add_embedding_length", lambda self, count: None)
    write_gguf(path, model, metadata={"block_count": 2, "embedding_length": 32})
    with pytest.raises(CheckpointError, match=r"token_embd\.weight has the shape \[40, 64\]"):
        open_checkpoint(path)
