"""Whisper for the NPU: one program, run by ``satchel transcribe`` on the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
torch = pytest.importorskip("torch")

import satchel  # noqa: E402
from satchel.backends import find_target  # noqa: E402
from satchel.backends.qnn.payload import read_manifest  # noqa: E402
from satchel.cli.main import main  # noqa: E402
from satchel.errors import ConfigError, ExecutionError, RecipeError  # noqa: E402
from satchel.runtime.program import Program  # noqa: E402
from satchel.speech.audio import open_sound  # noqa: E402
from satchel.speech.model import SpeechModel  # noqa: E402
from satchel.speech.spectrogram import Spectrogram  # noqa: E402
from speech.test_sound import voice  # noqa: E402
from support.tiny_whisper import torch_model, write_huggingface  # noqa: E402

TARGET = "qnn:SM8750"
TEXT = [50258, 50259, 50359, 100, 200, 300]
# The tiny model's texts are unlikely and repeat themselves.
ANYTHING = {"log_probability_limit": None, "compression_limit": None, "no_speech_limit": None}


@pytest.fixture(scope="module")
def model() -> Any:
    return torch_model()


@pytest.fixture(scope="module")
def checkpoint(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_huggingface(tmp_path_factory.mktemp("npu") / "tiny", model)
    recordings = folder.parent / "recordings"
    recordings.mkdir()
    for number in range(4):
        soundfile.write(recordings / f"{number}.wav", voice(1.9, number), 16000)
        (recordings / f"{number}.txt").write_text(f"words that are said here, {number} of them")
    return folder


@pytest.fixture(scope="module")
def program(checkpoint: Path) -> Path:
    """With the target's usual recipe: 16-bit floats, which need no recordings."""
    return satchel.export(checkpoint, checkpoint.parent / "npu.satchel", target=TARGET)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a.ravel() @ b.ravel() / np.linalg.norm(a) / np.linalg.norm(b))


def _window(path: Path) -> np.ndarray:
    return Spectrogram(open_sound(path), 80).window(0, 200, 200)


def _theirs(model: Any, mel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What transformers makes of a window, and its logits behind each token of the text."""
    sound = torch.tensor(mel.T[None])
    with torch.no_grad():
        audio = model.model.encoder(sound).last_hidden_state[0]
        text = model(input_features=sound, decoder_input_ids=torch.tensor([TEXT]))
    return audio.numpy(), text.logits[0].numpy()


def _compare(hearing: SpeechModel, model: Any, mel: np.ndarray, least: float) -> None:
    audio, logits = _theirs(model, mel)
    hearing.listen(mel)
    assert hearing.audio is not None
    assert _cosine(hearing.audio, audio) > least
    one = hearing.open()
    read = hearing.read(one, TEXT[:4], [2, 3])
    other = hearing.fork(one, 4)
    both = hearing.step([one, other], [200, 200], 4)
    after = hearing.step([other], [300], 5)
    again = hearing.step([one], [300], 5)
    hearing.close([one, other])
    assert np.array_equal(both[0], both[1]) and np.array_equal(after, again)
    found = np.concatenate([read, both[:1], after])
    assert _cosine(found, logits[2:]) > least
    assert (found.argmax(-1) == logits[2:].argmax(-1)).all()


def test_windows_and_texts_are_transformers(program: Path, checkpoint: Path, model: Any) -> None:
    """Logits of texts that part, over two windows one after the other, and the times of words."""
    hearing = SpeechModel(Program(program))
    assert hearing.instance.emulated and hearing.instance.kernels == "qnn emulator"
    for number in (0, 3):
        mel = _window(checkpoint.parent / "recordings" / f"{number}.wav")
        _compare(hearing, model, mel, 0.9999)
    scores, logits = hearing.align(TEXT)
    assert scores.shape == (4, len(TEXT), 100)
    assert _cosine(logits, _theirs(model, mel)[1]) > 0.9999
    with pytest.raises(ExecutionError, match="no text"):
        hearing.close([99])


def test_it_writes_what_the_cpu_does(
    program: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same segments at the same times, by one text and by beams; the file runs on both."""
    sound = voice(1.9, 5)
    told = {}
    for target in (TARGET, "cpu"):
        transcriber = satchel.Transcriber(Program(program, target=target), threads=1)
        plain = transcriber.transcribe(sound, temperatures=(0.0,), **ANYTHING)
        beams = transcriber.transcribe(sound, beams=2, temperatures=(0.0,), **ANYTHING)
        told[target] = [
            [(s.start, s.end, s.text) for s in said.segments] for said in (plain, beams)
        ]
    assert told[TARGET] == told["cpu"] and all(told["cpu"])
    soundfile.write(tmp_path / "talk.wav", sound, 16000)
    assert (
        main(["transcribe", str(program), str(tmp_path / "talk.wav"), "--temperatures", "0"]) == 0
    )
    assert capsys.readouterr().out.strip()


def test_what_runs_where_is_told(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = Program(program)
    manifest = read_manifest(opened)
    assert {name: m.tokens for name, m in manifest.methods.items()} == {"encode": 0, "decode": 1}
    assert not manifest.shared and manifest.methods["encode"].before is None
    held = [set(method.held) for method in manifest.methods.values()]
    assert held[0] == held[1] == {f"heard.{layer}.{part}" for layer in (0, 1) for part in "kv"}
    assert main(["inspect", str(program)]) == 0
    said = capsys.readouterr().out
    assert "the times of words are found by the CPU" in said and "fp16" in said


@pytest.mark.parametrize(
    "recipe", [pytest.param(r, marks=pytest.mark.slow) for r in ("16a8w", "16a4w", "8a8w")]
)
def test_whole_numbers_are_near(checkpoint: Path, model: Any, recipe: str, tmp_path: Path) -> None:
    folder = checkpoint.parent / "recordings"
    path = satchel.export(
        checkpoint, tmp_path / "npu.satchel", target=TARGET, recipe=recipe, calibrate=str(folder)
    )
    least = {"16a8w": 0.9995, "16a4w": 0.97, "8a8w": 0.97}[recipe]
    opened = Program(path)
    reference = find_target(TARGET).open_reference(opened)
    mel = _window(folder / "0.wav")
    (expected,) = reference.method("encode").run(mel)
    hearing = SpeechModel(opened)
    hearing.listen(mel)
    assert hearing.audio is not None and _cosine(hearing.audio, np.asarray(expected)) > 0.999
    _compare(hearing, model, mel, least)


def test_what_it_cannot_do_is_told(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="measured on recordings"):
        satchel.export(checkpoint, tmp_path / "a", target=TARGET, recipe="16a8w")
    with pytest.raises(RecipeError, match="measured on recordings"):
        satchel.export(checkpoint, tmp_path / "a", target="qnn:SM8350")
    with pytest.raises(RecipeError, match="does not run the recipe 8da4w"):
        satchel.export(checkpoint, tmp_path / "a", target=TARGET, recipe="8da4w")
    kit = find_target(TARGET, kit=str(tmp_path / "kit"))
    with pytest.raises(ConfigError, match="kit is for language models"):
        satchel.export(checkpoint, tmp_path / "a", target=kit)
    assert not list(tmp_path.iterdir())
