"""What of a text is calibrated on: its first tokens, or samples of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import satchel
from satchel.calibration import texts
from satchel.calibration.texts import CalibrationText, read_calibration
from satchel.checkpoints.base import TokenizerSource
from satchel.errors import ConfigError
from satchel.llm.tokenizer import Tokenizer, read_tokenizer
from satchel.remarks import Remark
from support.tiny_llm import write_tiny_llm, write_tokenizer

PARAGRAPHS = ["Once upon a time", "there was", "x", "a third of them, which is long"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    write_tokenizer(tmp_path)
    return Tokenizer(read_tokenizer(TokenizerSource("huggingface", tmp_path)))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(PARAGRAPHS[:2]) + "\n \n" + "\n\n\n".join(PARAGRAPHS[2:]))
    return str(path)


def words(text: CalibrationText, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(list(window)) for window in text.windows]


def test_samples_are_paragraphs(file: str, tokenizer: Tokenizer) -> None:
    found = read_calibration(file, tokenizer, samples=2)
    assert words(found, tokenizer) == PARAGRAPHS[:2] and found.apart
    # One of a single token has nothing that could follow another, and does not count.
    cut = read_calibration(file, tokenizer, samples=3, length=10)
    assert words(cut, tokenizer) == ["Once upon ", "there was", "a third of"]
    assert read_calibration(file, tokenizer).apart is False


def test_limits_are_of_all_samples_together(file: str, tokenizer: Tokenizer) -> None:
    found = read_calibration(file, tokenizer, limit=12, length=8)
    assert words(found, tokenizer) == ["Once upo", "ther"]
    assert found.digest != read_calibration(file, tokenizer, limit=12, length=7).digest


def test_samples_of_a_task_are_its_items(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer
) -> None:
    items = ["a question\n\nand its answer", "another", "a third"]
    monkeypatch.setattr(texts, "_task_texts", lambda name: items if name == "quiz" else [])
    assert words(read_calibration("task:quiz", tokenizer, samples=2), tokenizer) == items[:2]


def test_too_few_samples_are_told(file: str, tokenizer: Tokenizer) -> None:
    with pytest.warns(Remark, match="has 3 samples to calibrate on, and not 128"):
        assert len(read_calibration(file, tokenizer, samples=128).windows) == 3
    with pytest.raises(ConfigError, match="no sample of two tokens"):
        read_calibration("prompt:x", tokenizer, samples=1)
    with pytest.raises(ConfigError, match="samples of 1 tokens are too short"):
        read_calibration(file, tokenizer, length=1)


def test_an_export_says_what_it_was_calibrated_on(tmp_path: Path, file: str) -> None:
    folder = write_tiny_llm(tmp_path / "tiny")
    options = {"calibrate": file, "calibrate_samples": 3, "calibrate_length": 9}
    path = satchel.export(folder, tmp_path / "x.satchel", **options)  # type: ignore[call-overload]
    recipe = satchel.load(path).metadata["recipe"]
    assert recipe["calibration"] == {"source": "text.txt", "tokens": 27, "samples": 3}
    with pytest.raises(ConfigError, match="calibrate_samples needs something to calibrate on"):
        satchel.export(folder, tmp_path / "y.satchel", calibrate_samples=3)
