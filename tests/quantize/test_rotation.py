"""Rotated models compute what they computed: against transformers, for every family that can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from exporter.small_checkpoint import write_small
from satchel.checkpoints import open_checkpoint
from satchel.errors import ConfigError, RecipeError
from satchel.exporter import ExportOptions, prepare_export
from satchel.models import build_model
from satchel.program.stored_graphs import read_graphs
from satchel.quantize.moments import MomentsSum
from satchel.quantize.rotation import RotatedCheckpoint, plan_rotation, untie_head
from satchel.quantize.rotation.matrices import hadamard, orthogonal
from support.arrays import normal
from support.tiny_models import logits_of, tiny_model, write_checkpoint

TOKENS = np.arange(30, 62, dtype=np.int32)
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},  # every bias there is
    "llama-tied": {"tie_word_embeddings": True},
    "llama-odd": {"hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "phi3": {"pad_token_id": 0},  # q, k, v in one tensor, gate and up in another
    "granite": {
        "residual_multiplier": 0.5,
        "embedding_multiplier": 2.0,
        "tie_word_embeddings": True,
    },
    "gemma": {"head_dim": 16, "tie_word_embeddings": True},  # gains are stored less 1
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))


def program_logits(path: Path) -> Any:
    program = satchel.load(path, verify=True)
    run = program.instance(threads=1).method("prefill_forward")
    return run(tokens=TOKENS, position=[0], rows=np.arange(len(TOKENS)))


@pytest.mark.parametrize("family", FAMILIES)
def test_float_models_are_unchanged(family: str, tmp_path: Path) -> None:
    model = tiny_model(family.split("-", maxsplit=1)[0], **FAMILIES[family])
    folder = write_checkpoint(tmp_path / "m", model)
    path = satchel.export(
        folder, tmp_path / "m.satchel", recipe="fp32", rotate=True, context=64, prefill_ar_len=32
    )
    wanted = logits_of(model, TOKENS)
    assert np.abs(program_logits(path) - wanted).max() < 1e-4 * np.abs(wanted).max()
    stored = {w["name"]: w for w in satchel.load(path).weights}
    norm = satchel.load(path).weight(next(n for n in stored if "input_layernorm" in n))
    assert (norm == 1).all()  # really rotated: gains are in the weights


@pytest.mark.parametrize("kv_bits", [8, 32])
@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3"])
def test_rotations_at_run_time_change_nothing_either(
    family: str, kv_bits: int, tmp_path: Path
) -> None:
    model = tiny_model(family, **FAMILIES[family])
    folder = write_checkpoint(tmp_path / "m", model)
    choices: dict[str, Any] = {"recipe": "fp32", "context": 64, "prefill_ar_len": 32}
    path = satchel.export(
        folder,
        tmp_path / "m.satchel",
        rotate=True,
        rotate_online=True,
        kv_bits=kv_bits,
        **choices,
    )
    wanted = logits_of(model, TOKENS)
    # A cache of 8 bits rounds, here as without rotations.
    limit = 1e-4 if kv_bits == 32 else 0.05
    assert np.abs(program_logits(path) - wanted).max() < limit * np.abs(wanted).max()
    per_layer = 1 if kv_bits == 32 else 3  # with q and k
    for graph in read_graphs(satchel.load(path)).values():
        layers = sum(node.op == "attention" for node in graph.nodes)
        assert sum(node.op == "hadamard" for node in graph.nodes) == per_layer * layers
    assert satchel.load(path).metadata["recipe"]["rotated"] == "online"


def test_outliers_are_spread() -> None:
    x = np.zeros(576)
    x[7] = 100.0
    assert np.abs(x @ orthogonal(576, 0)).max() == pytest.approx(100 / 24)


@pytest.mark.parametrize("size", [4, 12, 20, 28, 36, 48, 72, 576, 896, 960, 1024])
def test_hadamard_matrices(size: int) -> None:
    matrix = hadamard(size)
    assert matrix is not None
    assert set(np.unique(matrix)) == {-1.0, 1.0}
    np.testing.assert_array_equal(matrix @ matrix.T, size * np.eye(size))


def test_a_size_without_hadamard_gets_a_random_matrix() -> None:
    assert hadamard(90) is None
    matrix = orthogonal(90, seed=3)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(90), atol=1e-12)
    np.testing.assert_array_equal(matrix, orthogonal(90, seed=3))


def test_statistics_of_the_model_serve_its_rotation(tmp_path: Path) -> None:
    """The moments of rotated inputs are those that the rotation of the moments says."""
    checkpoint = open_checkpoint(write_small(tmp_path / "m"))
    graph = build_model(checkpoint.config).method("kv_forward", 1, 8)
    untie_head(graph)
    rotated_checkpoint = RotatedCheckpoint(checkpoint, plan_rotation(graph))
    name = "model.layers.0.mlp.up_proj.weight"
    gain = checkpoint.read("model.layers.0.post_attention_layernorm.weight")
    x = normal(50, 128, seed="x") * gain  # as after the norm
    before, rotated = rotated_checkpoint.base.read(name), rotated_checkpoint.read(name)
    seen = MomentsSum(128)
    seen.add(x, np.ones(50))
    moments = rotated_checkpoint.moments(name, seen.finish())
    assert moments is not None
    # Energy of the layer's outputs, from inputs and weights both as they were and both rotated.
    np.testing.assert_allclose(
        np.einsum("rc,cd,rd->r", rotated, moments.second, rotated),
        ((before @ x.T) ** 2).mean(axis=1),
        rtol=1e-3,
    )
    assert rotated_checkpoint.moments("model.layers.0.mlp.down_proj.weight", None) is None


def test_blocks_of_rows_are_parts_of_the_whole(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_small(tmp_path / "m"))
    graph = build_model(checkpoint.config).method("kv_forward", 1, 8)
    rotated_checkpoint = RotatedCheckpoint(checkpoint, plan_rotation(graph))
    for name in rotated_checkpoint.tensors:
        whole = rotated_checkpoint.read(name)
        half = slice(0, len(whole) // 2)
        np.testing.assert_allclose(rotated_checkpoint.read(name, half), whole[half], atol=1e-6)


def test_rotated_and_calibrated(tmp_path: Path) -> None:
    folder = write_small(
        tmp_path / "m", weights_of={"tie_word_embeddings": True}, tie_word_embeddings=True
    )
    options = ExportOptions(rotate=True, calibrate="prompt:" + "tell me a story " * 20)
    job, plain = prepare_export(folder, options), prepare_export(folder, ExportOptions())
    assert job.default_output.name == "m-cpu-8da4w-g32-gptq-rotated.satchel"
    assert (
        job.portable.parameters == plain.portable.parameters
    )  # a head of its own is no new parameter
    assert job.plan().file_size > plain.plan().file_size
    program = satchel.load(job.run(tmp_path / "m.satchel"), verify=True)
    assert program.metadata["recipe"]["rotated"] == "folded"
    assert program.metadata["recipe"]["description"].endswith("rounding gptq, rotated")
    assert {w["name"] for w in program.weights} >= {
        "model.embed_tokens.weight",
        "model.embed_tokens.weight#head",
    }


def test_what_cannot_be_rotated_says_so(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", tiny_model("gemma2", head_dim=16))
    with pytest.raises(RecipeError, match="cannot be rotated: rms_norm"):
        prepare_export(folder, ExportOptions(rotate=True))  # it normalises what its layers add
    sizes = {"n_embd": 64, "n_layer": 1, "n_head": 4, "rotary_dim": 8, "n_positions": 64}
    codegen = build_model({"model_type": "codegen", "vocab_size": 272, **sizes})
    with pytest.raises(RecipeError, match="cannot be rotated: layer_norm"):
        plan_rotation(codegen.method("kv_forward", 1, 8))


def test_kept_weights_are_not_rotated(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="kept as they are cannot be rotated"):
        prepare_export(write_small(tmp_path / "m"), ExportOptions(recipe="keep", rotate=True))


def test_run_time_rotations_go_with_the_others() -> None:
    with pytest.raises(ConfigError, match="rotate_online goes with rotate"):
        ExportOptions(rotate_online=True)
