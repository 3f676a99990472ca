"""Checkpoints that come quantised on the NPU: their own codes and scales, not rounded again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import satchel
from checkpoints.packed_files import write_packed
from exporter.test_export_prequantized_gguf import rounded_like_gguf, write
from exporter.test_export_prequantized_meta import write_quantized
from satchel.backends import open_instance
from satchel.backends.qnn.weights import ProgramWeights
from satchel.errors import RecipeError
from satchel.exporter import ExportOptions, prepare_export
from satchel.llm.session import Session
from satchel.runtime.program import Instance, Program
from support.arrays import integers
from support.tiny_models import tiny_model, write_tokenizer

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

OPTIONS = {"target": "qnn:SM8750", "context": 32, "prefill_ar_len": 8, "recipe": "keep"}
PROMPT = integers(11, below=250).tolist()


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("kind", ["Q4_0", pytest.param("Q8_0", marks=pytest.mark.all_rows)])
def test_ggufs_codes_are_multiplied_as_they_are(tmp_path: Path, kind: str) -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    path = satchel.export(
        write(tmp_path, model, kind), tmp_path / "m.satchel", mode="kv", **OPTIONS
    )
    program = Program(path)
    expected = dict(rounded_like_gguf(model, kind).named_parameters())
    weights = ProgramWeights(program)
    for weight in program.weights:
        if weight["encoding"] in ("matrix_q4", "matrix_q8") and "layers" in weight["name"]:
            stored = weights.matrix(weight["name"])
            # Half of Q4_0's scales are below 0, which the NPU's cannot be: codes of 8 bits.
            assert stored.bits == 8 and (stored.scales >= 0).all()
            wanted = expected[weight["name"]].detach().numpy()
            np.testing.assert_array_equal(stored.numbers(), wanted, weight["name"])
    assert program.metadata["payloads"]["qnn:SM8750"]["shards"][0]["agreement"] > 0.999
    reference = Session(program, instance=open_instance(program, reference=True)).feed(PROMPT)
    assert cosine(Session(program).feed(PROMPT), reference) > 0.999
    assert cosine(reference, Session(program, instance=Instance(program)).feed(PROMPT)) > 0.99


def test_metas_codes_stay_in_4_bits_beside_their_adaptors(tmp_path: Path) -> None:
    """QAT + LoRA: groups of 32 with scales above 0, and branches of 8 bits."""
    folder = tmp_path / "m"
    folder.mkdir()
    model = tiny_model("llama", head_dim=16)
    write_quantized(folder, model)
    write_tokenizer(folder)
    path = satchel.export(folder, tmp_path / "m.satchel", mode="kv", **OPTIONS)
    program = Program(path)
    weights = ProgramWeights(program)
    kept = [w["name"] for w in program.weights if w["encoding"] == "matrix_q4"]
    assert kept and all(weights.matrix(name).bits == 4 for name in kept)
    reference = Session(program, instance=open_instance(program, reference=True)).feed(PROMPT)
    assert cosine(Session(program).feed(PROMPT), reference) > 0.999
    assert cosine(reference, Session(program, instance=Instance(program)).feed(PROMPT)) > 0.99


@pytest.mark.parametrize("group", [-1, pytest.param(32, marks=pytest.mark.all_rows)])
def test_gptqs_codes_stay_in_4_bits(tmp_path: Path, group: int) -> None:
    """Symmetric ones: as blocks, or one scale for each row. The head, which those tools leave in
    floats, has 8 bits there, and a note says so."""
    model = tiny_model("llama", tie_word_embeddings=True)
    folder = write_packed(tmp_path / "m", model, "gptq", group=group, sym=True)
    job = prepare_export(folder, ExportOptions(mode="kv", **OPTIONS))
    assert "model.embed_tokens.weight has floats in the checkpoint, and 8 bits" in job.notes[0]
    program = Program(job.run(tmp_path / "m.satchel"))
    expected, weights = dict(model.named_parameters()), ProgramWeights(program)
    kept = [w["name"] for w in program.weights if w["encoding"] == "matrix_q4"]
    assert len(kept) == 14  # seven layers of each of the two
    for name in kept:
        stored, wanted = weights.matrix(name), expected[name].detach().numpy()
        assert stored.bits == 4
        np.testing.assert_array_equal(stored.numbers(), wanted, name)
    assert program.metadata["payloads"]["qnn:SM8750"]["shards"][0]["agreement"] > 0.999
    reference = Session(program, instance=open_instance(program, reference=True)).feed(PROMPT)
    assert cosine(Session(program).feed(PROMPT), reference) > 0.999


def test_larger_groups_are_blocks_with_equal_scales() -> None:
    from satchel.backends.qnn.weights import _in_blocks

    rng = np.random.default_rng(0)
    codes = rng.integers(-8, 8, (4, 256)).astype(np.int8)
    scales = rng.uniform(0.1, 1, (4, 2)).astype(np.float32)
    stored = _in_blocks(codes, scales, 256, 4)
    assert stored.bits == 4 and stored.scales.shape == (4, 4)
    wanted = codes.reshape(4, 2, 128) * scales[:, :, None]
    np.testing.assert_array_equal(stored.numbers(), wanted.reshape(4, 256))


def test_what_has_offsets_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, tiny_model("llama", tie_word_embeddings=True), "Q4_1")
    with pytest.raises(RecipeError, match="does not compute with.*q4_min.*without offsets"):
        satchel.export(path, tmp_path / "m.satchel", **OPTIONS)
    eight = {**OPTIONS, "activation_bits": 8}
    with pytest.raises(RecipeError, match="activations of 16 bits"):
        satchel.export(path, tmp_path / "m.satchel", **eight)
