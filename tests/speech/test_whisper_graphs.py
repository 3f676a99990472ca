"""Whisper's encoder, decoder and cross-attention against transformers'."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import satchel
from satchel.errors import CheckpointError, ConfigError
from satchel.runtime.program import Program
from satchel.speech.tokens import Tokens
from support.tiny_whisper import (
    ENGLISH,
    LARGE_V3,
    MULTILINGUAL,
    export_tiny,
    ranks_file,
    set_generation,
    torch_model,
    write_ggml,
    write_huggingface,
    write_pt,
)

# The proportions of the real sizes: layers of encoder and decoder, heads, mel bins, vocabulary.
SIZES = {
    "tiny.en": {"vocab_size": ENGLISH},
    "tiny": {"vocab_size": MULTILINGUAL},
    "base": {"encoder_layers": 3, "decoder_layers": 3, "d_model": 64, "decoder_attention_heads": 8},
    "small": {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 48},
    "large-v3": {"vocab_size": LARGE_V3, "num_mel_bins": 128},
    "large-v3-turbo": {"vocab_size": LARGE_V3, "num_mel_bins": 128, "encoder_layers": 4},
}
TOKENS = [50258, 50259, 50359, 50364, 300, 301, 302, 303]


def mel_of(model: Any, seed: int = 3) -> np.ndarray:
    c = model.config
    return (
        np.random.default_rng(seed)
        .normal(0, 0.7, (2 * c.max_source_positions, c.num_mel_bins))
        .astype(np.float32)
    )


def step(method: Any, tokens: list[int], first: int, sequence: int) -> np.ndarray:
    count = len(tokens)
    return method(
        tokens=np.array(tokens, np.int32),
        position=np.arange(first, first + count, dtype=np.int32),
        rows=np.arange(count, dtype=np.int32),
        sequence=np.full(count, sequence, np.int32),
    )


@pytest.mark.parametrize("size", SIZES)
def test_encoder_and_decoder_are_transformers(size: str, tmp_path: Path) -> None:
    model, path = export_tiny(tmp_path, **SIZES[size])
    mel = mel_of(model)
    with torch.no_grad():
        seen = model.model.encoder(torch.from_numpy(mel.T.copy())[None]).last_hidden_state
        wanted = (
            model(encoder_outputs=(seen,), decoder_input_ids=torch.tensor([TOKENS]))
            .logits[0]
            .numpy()
        )
    instance = Program(path).instance(2)
    audio = instance.method("encode")(mel)
    np.testing.assert_allclose(audio, seen[0].numpy(), atol=1e-4)
    decode = instance.method("decode")
    together = step(decode, TOKENS, 0, instance.open_sequence())
    np.testing.assert_allclose(together, wanted, atol=1e-4, rtol=1e-4)
    # One token at a time over a cache that grows, beside another sequence.
    sequence = instance.open_sequence()
    for at, token in enumerate(TOKENS):
        np.testing.assert_allclose(
            step(decode, [token], at, sequence)[0], wanted[at], atol=1e-4, rtol=1e-4
        )


def test_beams_step_together(tmp_path: Path) -> None:
    model, path = export_tiny(tmp_path)
    instance = Program(path).instance(2)
    instance.method("encode")(mel_of(model))
    decode = instance.method("decode")
    first = instance.open_sequence()
    step(decode, TOKENS[:4], 0, first)
    second = instance.fork_sequence(first, 4)
    both = decode(
        tokens=np.array([500, 501], np.int32),
        position=np.array([4, 4], np.int32),
        rows=np.array([0, 1], np.int32),
        sequence=np.array([first, second], np.int32),
    )
    for token, row in ((500, both[0]), (501, both[1])):
        alone = instance.open_sequence()
        step(decode, TOKENS[:4], 0, alone)
        np.testing.assert_allclose(step(decode, [token], 4, alone)[0], row, atol=1e-5)


def test_scores_of_the_cross_attention(tmp_path: Path) -> None:
    model = torch_model()
    folder = write_huggingface(tmp_path / "tiny", model)
    set_generation(folder, alignment_heads=[[0, 3], [1, 0], [1, 2]])
    path = satchel.export(folder, tmp_path / "tiny.satchel", recipe="fp32")
    mel = mel_of(model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        given = torch.from_numpy(mel.T.copy())[None]
        ids = torch.tensor([TOKENS])
        out = model(given, decoder_input_ids=ids, output_attentions=True)
    program = Program(path)
    assert program.metadata["alignment_heads"] == [[0, 3], [1, 0], [1, 2]]
    instance = program.instance(1)
    audio = instance.method("encode")(mel)
    count = len(TOKENS)
    made = instance.method("align")(
        tokens=np.array(TOKENS, np.int32),
        position=np.arange(count, dtype=np.int32),
        rows=np.arange(count, dtype=np.int32),
        audio=audio,
        sequence=np.full(count, instance.open_sequence(), np.int32),
    )
    np.testing.assert_allclose(made["logits"], out.logits[0].numpy(), atol=1e-4, rtol=1e-4)
    for layer, heads in ((0, [3]), (1, [0, 2])):
        scores = made[f"scores.{layer}"]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        wanted = out.cross_attentions[layer][0, heads].numpy()
        np.testing.assert_allclose(weights, wanted, atol=1e-5)


def test_three_formats_are_one_program(tmp_path: Path) -> None:
    model = torch_model()
    sources = [
        write_huggingface(tmp_path / "hf", model),
        write_pt(tmp_path / "tiny.pt", model),
        write_ggml(tmp_path / "ggml-tiny.bin", model),
    ]
    programs = [
        Program(satchel.export(source, tmp_path / f"{n}.satchel", recipe="8da4w", group_size=32))
        for n, source in enumerate(sources)
    ]
    formats = [program.metadata["provenance"]["format"] for program in programs]
    assert formats == ["safetensors", "openai-whisper", "ggml"]
    digests = [{w["name"]: w["digest"] for w in program.weights} for program in programs]
    assert digests[0] == digests[1] == digests[2]
    assert {p.section("tokenizer") for p in programs[1:]} == {programs[0].section("tokenizer")}


@pytest.mark.parametrize(
    ("recipe", "overrides", "limit"),
    [
        ("fp16", {}, 0.01),
        ("8a8w", {}, 0.08),
        ("8da4w", {}, 0.25),
        ("8da4w", {"encoder.*": "fp16", "decoder.*": "8a8w"}, 0.08),
    ],
)
def test_recipes(recipe: str, overrides: dict[str, str], limit: float, tmp_path: Path) -> None:
    model = torch_model()
    folder = write_huggingface(tmp_path / "tiny", model)
    path = satchel.export(folder, tmp_path / "q.satchel", recipe=recipe, overrides=overrides)
    mel = mel_of(model)
    with torch.no_grad():
        given = torch.from_numpy(mel.T.copy())[None]
        wanted = model(given, decoder_input_ids=torch.tensor([TOKENS])).logits[0].numpy()
    program = Program(path)
    instance = program.instance(1)
    instance.method("encode")(mel)
    logits = step(instance.method("decode"), TOKENS, 0, instance.open_sequence())
    error = np.linalg.norm(logits - wanted) / np.linalg.norm(wanted)
    assert 1e-5 < error < limit
    kinds = {w["name"]: w["encoding"] for w in program.weights}
    encoder = kinds["model.encoder.layers.0.fc1.weight"]
    expected = {"fp16": "matrix_f16", "8a8w": "matrix_q8", "8da4w": "matrix_q8"}[recipe]
    assert encoder.startswith("matrix_f16" if overrides else expected)
    if recipe == "8da4w" and not overrides:
        heard = "model.decoder.layers.0.encoder_attn.k_proj.weight"
        assert kinds[heard].startswith("matrix_q4")
        assert kinds["model.decoder.layers.0.fc1.weight"] == "matrix_q8"  # in so small a model


def test_the_decoder_has_activations_of_16_bits(tmp_path: Path) -> None:
    """With 8a8w, unless it is said otherwise: they cost it no bytes, and it loses by 8."""
    model = torch_model()
    folder = write_huggingface(tmp_path / "tiny", model)
    usual = satchel.export(folder, tmp_path / "a.satchel", recipe="8a8w")
    eights = {"decoder.layers.*": "8a8w"}
    plain = satchel.export(folder, tmp_path / "b.satchel", recipe="8a8w", overrides=eights)
    sizes = [sum(w["codes_size"] for w in Program(path).weights) for path in (usual, plain)]
    assert sizes[0] == sizes[1] and "mixed" not in str(usual)
    mel = mel_of(model)
    audio = torch.from_numpy(Program(usual).instance(1).method("encode")(mel))[None]
    with torch.no_grad():  # over the same audio: what the decoder alone loses
        states = model.model.decoder(
            torch.tensor([TOKENS]), encoder_hidden_states=audio
        ).last_hidden_state
        wanted = model.proj_out(states)[0].numpy()
    errors = []
    for path in (usual, plain):
        instance = Program(path).instance(1)
        instance.method("encode")(mel)
        logits = step(instance.method("decode"), TOKENS, 0, instance.open_sequence())
        errors.append(np.linalg.norm(logits - wanted) / np.linalg.norm(wanted))
    assert errors[0] < 0.8 * errors[1], errors


def test_what_is_no_whisper_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "whisper", None)  # as if openai-whisper were not installed
    model = torch_model()
    folder = tmp_path / "alone"
    folder.mkdir()
    path = write_pt(folder / "tiny.pt", model)
    (folder / "multilingual.tiktoken").unlink()
    with pytest.raises(CheckpointError, match="no tokenizer in it"):
        satchel.export(path, tmp_path / "x.satchel")
    other = ranks_file(tmp_path / "other.tiktoken")
    made = satchel.export(path, tmp_path / "x.satchel", tokenizer=other, recipe="fp32")
    assert Program(made).about.kind == "speech"
    with pytest.raises(ConfigError, match="mode is for language models"):
        satchel.export(path, tmp_path / "y.satchel", tokenizer=other, mode="kv")
    ggml = write_ggml(tmp_path / "cut.bin", model)
    data = ggml.read_bytes()
    for size in (40, 2000, 700_000, len(data) - 7):
        ggml.write_bytes(data[:size])
        with pytest.raises(CheckpointError, match="cut.bin"):
            satchel.export(ggml, tmp_path / "z.satchel")
    with pytest.raises(ConfigError, match="no vocabulary of 1000"):
        Tokens.of_vocabulary(1000)


def test_a_token_of_no_bytes(tmp_path: Path) -> None:
    """openai-whisper's own multilingual.tiktoken ends with one, written as padding alone."""
    path = write_pt(tmp_path / "tiny.pt", torch_model())
    lines = (tmp_path / "multilingual.tiktoken").read_text().splitlines()
    (tmp_path / "multilingual.tiktoken").write_text("\n".join([*lines[:-1], "= 50256"]))
    made = satchel.export(path, tmp_path / "x.satchel", recipe="fp32")
    assert Program(made).about.kind == "speech"


def test_small_models_have_few_layers_in_four_bits(tmp_path: Path) -> None:
    path = write_pt(tmp_path / "tiny.pt", torch_model())
    recipe = {"recipe": "8da4w", "overrides": {"decoder.layers.*.fc*": "fp16"}}
    made = Program(satchel.export(path, tmp_path / "x.satchel", **recipe)).about.recipe["overrides"]
    assert made["decoder.layers.*.self_attn.*"] == "16a8w"
    assert made["decoder.layers.*.fc*"] == "fp16"  # as asked


def test_the_vocabulary_has_a_scale_for_each_32_columns(tmp_path: Path) -> None:
    """Unless something else is asked for: nearer to the weights by much."""
    folder = write_huggingface(tmp_path / "tiny", torch_model())
    usual = satchel.export(folder, tmp_path / "a.satchel", recipe="8a8w")
    rows = satchel.export(folder, tmp_path / "b.satchel", recipe="8a8w", embedding=(8, 0))
    told = [Program(path).metadata["recipe"]["description"] for path in (usual, rows)]
    assert "embedding 8,32" in told[0] and "embedding 8,0" in told[1]
    assert usual.stat().st_size > rows.stat().st_size
    fours = satchel.export(folder, tmp_path / "c.satchel", recipe="8da4w")
    kinds = {w["name"]: w["encoding"] for w in Program(fours).weights}
    assert kinds["model.decoder.embed_tokens.weight"].startswith("matrix_q8")


def test_targets_that_cannot_hear_say_so(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "tiny", torch_model())
    for target in ("coreml", "executorch"):
        with pytest.raises(ConfigError, match="does not run Whisper"):
            satchel.export(folder, tmp_path / "x.satchel", target=target)
