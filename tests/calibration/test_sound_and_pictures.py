"""What layers see of recordings and pictures, against what transformers' layers are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

import satchel
from satchel.calibration import watch as watching
from satchel.calibration.pictures import read_pictures, shown_inputs
from satchel.calibration.sound import heard_inputs, read_recordings
from satchel.calibration.texts import read_calibration
from satchel.checkpoints import open_checkpoint
from satchel.errors import InputError, RecipeError
from satchel.exporter.speech import _tokenizer, _with_windows
from satchel.exporter.weights import WeightPacker
from satchel.llm.tokenizer import Tokenizer, read_tokenizer
from satchel.models import build_model
from satchel.runtime.program import Program
from satchel.speech.vocabulary import Vocabulary
from satchel.speech.whisper import Whisper
from satchel.vision_language.towers import split_tower
from speech.test_sound import voice
from support.tiny_llava import tiny_llava
from support.tiny_whisper import torch_model, write_huggingface


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two recordings that fit into the tiny model's window of 2 seconds, and one that does not."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    for name, seconds in (("a", 1.5), ("b", 2.0), ("long", 5.0)):
        soundfile.write(folder / f"{name}.wav", voice(seconds, seed=len(name)), 16000)
        (folder / f"{name}.txt").write_text(f"words of {name}")
    return folder


def power(inputs: list[np.ndarray]) -> np.ndarray:
    rows = np.concatenate([x.reshape(-1, x.shape[-1]) for x in inputs])
    return np.einsum("nc,nd->cd", rows, rows) / len(rows)


def hooked(model: Any, names: dict[str, str]) -> dict[str, list[np.ndarray]]:
    """What the modules of these names are given from now on, by our weights' names."""
    given: dict[str, list[np.ndarray]] = {ours: [] for ours in names.values()}
    for name, ours in names.items():
        model.get_submodule(name).register_forward_pre_hook(
            lambda _, x, ours=ours: given[ours].append(x[0].detach().numpy())
        )
    return given


@pytest.mark.parametrize("most", [1 << 30, 1])
def test_what_whisper_hears(
    tmp_path: Path, recorded: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass, and in one for each input."""
    monkeypatch.setattr(watching, "MOST_BYTES", most)
    theirs = torch_model()
    checkpoint = open_checkpoint(write_huggingface(tmp_path / "m", theirs))
    model = Whisper(checkpoint.config)
    vocabulary = Vocabulary(Tokenizer(_tokenizer(checkpoint, model.vocab_size)), model.vocab_size)
    sound = read_recordings(str(recorded), vocabulary, model)
    assert len(sound.spoken) == 2
    read = WeightPacker(_with_windows(checkpoint), 1).rows
    seen = {w: s.moments for s in heard_inputs(model, read, sound.spoken) for w in s.weights}
    layers = [
        "model.encoder.layers.0.self_attn.out_proj",
        "model.encoder.layers.1.fc1",
        "model.decoder.layers.1.encoder_attn.k_proj",
        "model.decoder.layers.1.encoder_attn.out_proj",
        "model.decoder.layers.1.fc2",
    ]
    special = vocabulary.special
    with torch.no_grad():
        tokens = []
        for each in sound.spoken:  # the language that it sounds like, before anything is counted
            mel = torch.from_numpy(each.mel.T.copy())[None]
            start = torch.tensor([[special.start]])
            likely = theirs(input_features=mel, decoder_input_ids=start).logits[0, 0]
            chosen = range(special.language_tokens.start, special.language_tokens.stop)
            language = max(chosen, key=lambda token: float(likely[token]))
            tokens.append([special.start, language, special.transcribe, *each.words])
        given = hooked(theirs, {name: f"{name}.weight" for name in layers})
        for each, said in zip(sound.spoken, tokens, strict=True):
            mel = torch.from_numpy(each.mel.T.copy())[None]
            theirs(input_features=mel, decoder_input_ids=torch.tensor([said]))
    for name, inputs in given.items():
        wanted = power(inputs)
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(seen[name].second, wanted, atol=2e-4 * scale)
    assert special.end == sound.spoken[0].words[-1]


def test_an_export_that_heard_recordings(tmp_path: Path, recorded: Path) -> None:
    folder = write_huggingface(tmp_path / "m", torch_model())
    plain = satchel.export(folder, tmp_path / "plain.satchel", recipe="8da4w")
    told: dict[str, Any] = {"recipe": "8da4w", "calibrate": str(recorded)}
    made = satchel.export(folder, tmp_path / "made.satchel", **told)
    assert made.read_bytes() != plain.read_bytes()
    recipe = Program(made).metadata["recipe"]
    assert recipe["rounding"] == "gptq" and recipe["calibration"]["samples"] == 2
    assert satchel.Transcriber(made, threads=1).detect_language(recorded / "a.wav")
    with pytest.raises(RecipeError, match="does not round"):
        satchel.export(folder, tmp_path / "x.satchel", recipe="fp16", calibrate=str(recorded))
    with pytest.raises(InputError, match="no recordings with transcripts"):
        satchel.export(folder, tmp_path / "x.satchel", calibrate=str(tmp_path / "m"))


def test_what_a_tower_sees(tmp_path: Path) -> None:
    theirs, folder = tiny_llava(tmp_path / "m")
    shown = tmp_path / "shown"
    shown.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (40, 30 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(shown / f"{number}.png")
    text_part, tower = split_tower(open_checkpoint(folder))
    assert tower is not None and text_part.tokenizer is not None
    tokenizer = Tokenizer(read_tokenizer(text_part.tokenizer))
    text = read_calibration("prompt:Some words.", tokenizer)
    used = read_pictures(str(shown), tower, text)
    model = build_model(text_part.config)
    read = WeightPacker(text_part, 1).rows
    seen = {w: s.moments for s in shown_inputs(tower, model, read, used) for w in s.weights}
    names = dict(theirs.named_modules())
    tower_name = next(n for n in names if n.endswith("encoder.layers.0.mlp.fc1"))
    projector = next(n for n in names if n.endswith("multi_modal_projector.linear_1"))
    ours = {tower_name: "fc1", projector: "linear_1"}
    given = hooked(theirs, ours)
    frames = torch.from_numpy(np.stack([f.transpose(2, 0, 1) for f in used.frames]))
    with torch.no_grad():
        theirs.get_image_features(pixel_values=frames)
    for end, inputs in given.items():
        name = next(
            n for n in seen if n.endswith(f"{end}.weight") and ("layers.0" in n or end != "fc1")
        )
        rows = [x[:, -16:] if end == "linear_1" else x for x in inputs]
        wanted = power(rows)
        np.testing.assert_allclose(seen[name].second, wanted, atol=2e-4 * np.abs(wanted).max())
    options: dict[str, Any] = {"recipe": "8da4w", "context": 128}
    plain = satchel.export(folder, tmp_path / "plain.satchel", **options)
    made = satchel.export(folder, tmp_path / "made.satchel", calibrate=str(shown), **options)
    recipe = Program(made).metadata["recipe"]
    assert recipe["calibration"] == {
        "source": "shown",
        "tokens": recipe["calibration"]["tokens"],
        "samples": 3,
    }
    assert made.read_bytes() != plain.read_bytes()
    answer = satchel.LLM(made, threads=1).generate(
        "What?", images=[shown / "0.png"], max_new_tokens=3
    )
    assert len(answer.finish().tokens) == 3
    with pytest.raises(InputError, match="no images"):
        satchel.export(folder, tmp_path / "x.satchel", calibrate=str(tmp_path / "m"), **options)
