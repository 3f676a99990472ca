"""What the shared check of logits leaves open: CodeGen2, both sides of longrope, 4 bits."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import satchel
from models.family_check import BLOCK, CONTEXT, TOKENS, TOLERANCE, prefill_then_decode
from models.model_rows import CODEGEN, DYNAMIC, GPT_NEOX, LONGROPE, PAD, ROWS
from models.quantized_check import QuantizedPair
from satchel.errors import CheckpointError
from satchel.models import architectures
from support.compare import relative_difference
from support.tiny_models import logits_of, tiny_model, write_checkpoint

FP32: dict[str, Any] = {"recipe": "fp32", "context": CONTEXT, "prefill_ar_len": BLOCK}
QUANTISED_TOLERANCE = 1e-3


@pytest.fixture
def codegen2(tmp_path: Path) -> tuple[Path, Any]:
    """A checkpoint in 8 blocks, which transformers has no class for, and its oracle.

    The oracle is a CodeGen model, whose qkv_proj lies in 4 blocks; the checkpoint has the same
    rows in the order of CodeGen2.
    """
    heads, hidden = 8, 64
    model = tiny_model("codegen", num_attention_heads=heads, rotary_dim=4, **CODEGEN)
    folder = write_checkpoint(tmp_path / "codegen2", model)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith("qkv_proj.weight"):
            parts = tensor.view(4, 3, hidden // 4, hidden).transpose(0, 1)  # q, v, k of all heads
            eight = parts.reshape(3, 8, hidden // 8, hidden).transpose(0, 1)
            tensors[name] = eight.reshape(3 * hidden, hidden).contiguous()
    save_file(tensors, folder / "model.safetensors")
    return folder, model


def edit_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("sign", [{"head_dim": 8}, {"mp_num": 8}], ids=str)
def test_codegen2_has_eight_blocks(
    codegen2: tuple[Path, Any], tmp_path: Path, sign: dict[str, int]
) -> None:
    folder, oracle = codegen2
    edit_config(folder, **sign)
    program = satchel.export(folder, tmp_path / "codegen2.satchel", **FP32)
    got = prefill_then_decode(satchel.load(program))
    np.testing.assert_allclose(got, logits_of(oracle, TOKENS), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("said", [True, None])
def test_a_head_of_its_own_is_used_though_the_configuration_ties_it(
    tmp_path: Path, said: bool | None
) -> None:
    """As transformers reads such a folder; Gemma's head is tied where nothing is said."""
    folder = write_checkpoint(tmp_path / "gemma", tiny_model("gemma", head_dim=16))
    config = json.loads((folder / "config.json").read_text())
    del config["tie_word_embeddings"]
    more = {} if said is None else {"tie_word_embeddings": said}
    (folder / "config.json").write_text(json.dumps(config | more))
    oracle = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        program = satchel.export(folder, tmp_path / "gemma.satchel", **FP32)
    assert any("head of its own" in str(one.message) for one in heard) == bool(said)
    got = prefill_then_decode(satchel.load(program))
    np.testing.assert_allclose(got, logits_of(oracle, TOKENS), rtol=0, atol=TOLERANCE)


def test_a_tied_matrix_that_is_stored_twice_is_one_in_the_program(tmp_path: Path) -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    folder = write_checkpoint(tmp_path / "llama", model)
    once = satchel.export(folder, tmp_path / "once.satchel", **FP32)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors")
    twice = satchel.export(folder, tmp_path / "twice.satchel", **FP32)
    assert twice.stat().st_size == once.stat().st_size


@pytest.mark.parametrize("stored", ["the same", "another"])
def test_a_tied_gpt_neox_may_have_a_head_too(tmp_path: Path, stored: str) -> None:
    """Its names are other ones; transformers takes the head that is there."""
    model = tiny_model("gpt_neox", **GPT_NEOX, tie_word_embeddings=True)
    folder = write_checkpoint(tmp_path / "neox", model)
    tensors = load_file(folder / "model.safetensors")
    head = tensors["gpt_neox.embed_in.weight"].clone()
    tensors["embed_out.weight"] = head if stored == "the same" else head.flip(0).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    oracle = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    program = satchel.export(folder, tmp_path / "neox.satchel", **FP32)
    got = prefill_then_decode(satchel.load(program))
    np.testing.assert_allclose(got, logits_of(oracle, TOKENS), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("architecture", ["qwen3", "llama", "gpt_neox"])
def test_a_base_model_is_saved_under_names_of_its_own(tmp_path: Path, architecture: str) -> None:
    """Qwen3-Embedding is such a folder: no head, and names that begin behind 'model.'."""
    more: dict[str, Any] = GPT_NEOX if architecture == "gpt_neox" else {"head_dim": 16}
    model = tiny_model(architecture, **more, tie_word_embeddings=True)
    folder = write_checkpoint(tmp_path / "base", model)
    model.base_model.save_pretrained(folder)
    assert any(name.startswith("embed_") for name in load_file(folder / "model.safetensors"))
    program = satchel.export(folder, tmp_path / "base.satchel", **FP32)
    got = prefill_then_decode(satchel.load(program))
    np.testing.assert_allclose(got, logits_of(model, TOKENS), rtol=0, atol=TOLERANCE)


def test_longrope_is_short_in_a_program_of_a_short_context(tmp_path: Path) -> None:
    """The same checkpoint on both sides of the switch, each as transformers runs that length."""
    original = 40
    model = tiny_model(
        "phi3", rope_parameters=LONGROPE, original_max_position_embeddings=original, **PAD
    )
    folder = write_checkpoint(tmp_path / "phi3", model)
    for context in (original, original + 1):
        program = satchel.export(
            folder, tmp_path / f"{context}.satchel", recipe="fp32", context=context, mode="kv"
        )
        kv = satchel.load(program).instance(threads=1).method("kv_forward")
        tokens = TOKENS[:context]
        got = np.concatenate([kv.run(tokens[at : at + 1], [at])[0] for at in range(context)])
        np.testing.assert_allclose(got, logits_of(model, tokens), rtol=0, atol=TOLERANCE)


def test_dynamic_scaling_stretches_by_the_context_of_the_program(tmp_path: Path) -> None:
    """Beyond the model's own context: as transformers reads a text of just that length."""
    original = 40
    model = tiny_model("llama", rope_parameters=DYNAMIC, max_position_embeddings=original)
    folder = write_checkpoint(tmp_path / "llama", model)
    for context in (original, 70):
        program = satchel.export(
            folder, tmp_path / f"{context}.satchel", recipe="fp32", context=context, mode="kv"
        )
        kv = satchel.load(program).instance(threads=1).method("kv_forward")
        tokens = TOKENS[:context]
        got = np.concatenate([kv.run(tokens[at : at + 1], [at])[0] for at in range(context)])
        np.testing.assert_allclose(got, logits_of(model, tokens), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("glm", {"head_dim": 24, **PAD}),
        ("codegen", {**CODEGEN, "hidden_size": 96, "rotary_dim": 10}),
        ("phi3", {"head_dim": 24, **PAD}),
    ],
)
def test_rows_are_the_same_however_many_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str, config: dict[str, Any]
) -> None:
    """Blocks of 16 rows begin and end within the heads of 24 whose rows change places."""
    folder = write_checkpoint(tmp_path / model_type, tiny_model(model_type, **config))
    digests = []
    for block_bytes in (8 << 20, 1):
        monkeypatch.setattr("satchel.exporter.weights.BLOCK_BYTES", block_bytes)
        program = satchel.export(folder, tmp_path / f"{block_bytes}.satchel", recipe="fp32")
        digests.append([(w["name"], w["digest"]) for w in satchel.load(program).weights])
    assert digests[0] == digests[1]


@pytest.mark.parametrize("architecture", architectures())
def test_quantised_programs_run_as_the_reference_does(tmp_path: Path, architecture: str) -> None:
    row = next(row for row in ROWS if row.model_type == architecture)
    folder = write_checkpoint(tmp_path / row.id, tiny_model(architecture, **row.config))
    options = {"recipe": "8da4w", "context": 64, "prefill_ar_len": 32}
    pair = QuantizedPair(folder, tmp_path / "q.satchel", **options)
    chooses = ".mlp.gate.weight"  # experts, without rounding
    kinds = {kind for name, (kind, _) in pair.encodings.items() if not name.endswith(chooses)}
    assert {"matrix_q4", "f32"} <= kinds <= {"matrix_q4", "matrix_q4_steps", "f32"}
    native, reference = pair.run_all(TOKENS[:36], prefill=30)  # past the windows
    assert relative_difference(native, reference) <= QUANTISED_TOLERANCE


@pytest.mark.parametrize("more", [-1, 1])
def test_a_fused_tensor_of_the_wrong_height_is_named(tmp_path: Path, more: int) -> None:
    folder = write_checkpoint(tmp_path / "phi3", tiny_model("phi3", **PAD))
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.qkv_proj.weight"
    rows = tensors[name].shape[0]
    tensors[name] = torch.zeros(rows + more, 64)
    save_file(tensors, folder / "model.safetensors")
    message = rf"qkv_proj.weight has the shape \[{rows + more}, 64\].* asks for \[{rows}, 64\]"
    with pytest.raises(CheckpointError, match=message):
        satchel.export(folder, tmp_path / "phi3.satchel")
    assert not (tmp_path / "phi3.satchel").exists()
