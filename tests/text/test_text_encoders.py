"""Folders of transformers as programs that make vectors: transformers' own numbers."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import satchel
from satchel.cli.main import main
from satchel.errors import CheckpointError, ConfigError, InputError, UnsupportedModelError
from satchel.text.encoder import TextRules
from support.compare import assert_close
from support.tiny_bert import add_sentence_files, write_tiny_bert
from support.tiny_llm import write_tiny_llm

TEXTS = ["the river in italy", "a", "the po", "unbelievable words é here", "x y z " * 5]


def wanted(folder: Path, texts: list[str], pooling: str, length: int = 40) -> Any:
    """What transformers makes of texts, padded together, and pooled as sentence-transformers do."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"]
    rows = []
    for text, kept in zip(states, mask.bool(), strict=True):
        own = text[kept]
        pooled = {"mean": own.mean(0), "cls": own[0], "max": own.amax(0), "last": own[-1]}
        rows.append(pooled[pooling])
    return torch.stack(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("text") / "bert")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return satchel.export(folder, folder.parent / "b.satchel", task="feature-extraction")


def test_vectors_are_those_of_transformers(folder: Path, program: Path) -> None:
    encoder = satchel.TextEncoder(program)
    many = [f"{text} {i}" for i in range(5) for text in TEXTS]  # more than one block
    assert_close(encoder.embed(many), wanted(folder, many, "mean").numpy(), 1e-5)
    assert encoder.embed("the po").shape == (32,)
    long = "the river " * 60
    assert_close(encoder.embed([long]), wanted(folder, [long], "mean").numpy(), 1e-5)
    with pytest.raises(InputError, match="takes 40"):
        encoder.embed(long, truncate=False)


def test_tokens_are_those_of_transformers(folder: Path, program: Path) -> None:
    encoder = satchel.TextEncoder(program)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in [*TEXTS, "", "[SEP] [MASK] in", "the river " * 60]:
        cut = tokenizer(text, truncation=True, max_length=40)["input_ids"]
        assert encoder.tokens(text, truncate=True) == cut


def test_many_threads_share_an_encoder(program: Path) -> None:
    encoder = satchel.TextEncoder(program)
    alone = encoder.embed(TEXTS)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = encoder.embed(TEXTS)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for made in found.values():
        np.testing.assert_array_equal(made, alone)


@pytest.mark.parametrize("pooling", ["cls", "max", "last"])
def test_what_sentence_transformers_says_is_done(pooling: str, tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "bert")
    dense = 8 if pooling == "cls" else 0
    add_sentence_files(folder, pooling, dense, {"query": "the river "})
    path = satchel.export(folder, tmp_path / "b.satchel", task="feature-extraction")
    encoder = satchel.TextEncoder(path)
    assert encoder.rules.max_length == 24
    rows = wanted(folder, TEXTS, pooling, 24)
    if dense:
        from safetensors.torch import load_file

        layer = load_file(folder / "2_Dense/model.safetensors")
        rows = torch.tanh(rows @ layer["linear.weight"].T + layer["linear.bias"])
    rows = torch.nn.functional.normalize(rows, dim=-1).numpy()
    assert_close(encoder.embed(TEXTS), rows, 1e-5)
    with_prompt = encoder.embed("in italy", prompt="query")
    np.testing.assert_array_equal(with_prompt, encoder.embed("the river in italy"))
    with pytest.raises(ConfigError, match="query"):
        encoder.embed("x", prompt="passage")


def test_int8_is_calibrated_on_lines_of_a_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS))
    path = satchel.export(
        folder,
        tmp_path / "b.satchel",
        task="feature-extraction",
        recipe="int8",
        calibrate=tmp_path / "texts.txt",
    )
    made, rows = satchel.TextEncoder(path).embed(TEXTS), wanted(folder, TEXTS, "mean").numpy()
    likeness = (made * rows).sum(1) / np.linalg.norm(made, axis=1) / np.linalg.norm(rows, axis=1)
    assert likeness.min() > 0.999


def test_commands(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "b.satchel"
    task = ["--task", "feature-extraction"]
    assert main(["export", str(folder), *task, "--pooling", "cls", "-o", str(path), "--json"]) == 0
    capsys.readouterr()
    assert main(["embed", str(path), *TEXTS[:2], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dimensions"] == 32 and document["embeddings"][1]["tokens"] == 3
    made = np.array([each["embedding"] for each in document["embeddings"]])
    assert_close(made, wanted(folder, TEXTS[:2], "cls").numpy(), 1e-5)
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS))
    output = tmp_path / "v.npz"
    assert main(["embed", str(path), "--input", str(lines), "-o", str(output)]) == 0
    stored = np.load(output)
    assert stored["texts"].tolist() == TEXTS
    assert_close(stored["embeddings"][:2], made, 1e-6)
    lines.write_text("one\u2028line\x0cand\x85more\r\nanother\n", newline="")
    assert main(["embed", str(path), "--input", str(lines), "-o", str(output)]) == 0
    assert np.load(output)["texts"].tolist() == ["one\u2028line\x0cand\x85more", "another"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXTS[0].encode())))
    capsys.readouterr()
    assert main(["embed", str(path), "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["embeddings"][0]["text"] == TEXTS[0]
    assert main(["run", str(path), "x"]) == 1
    assert "satchel embed FILE TEXT" in capsys.readouterr().err
    assert main(["export", str(folder), "-o", str(tmp_path / "no.satchel")]) == 1
    assert "--task feature-extraction" in capsys.readouterr().err
    assert main(["embed", str(path)]) == 1  # no text
    assert main(["export", str(folder), *task, "--kv-bits", "8"]) == 1
    assert main(["embed", str(tmp_path / "nothing.satchel"), "x"]) == 1


def test_what_is_no_encoder_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        satchel.export(tmp_path, task="feature-extraction")
    decoder = write_tiny_llm(tmp_path / "llm")
    with pytest.raises(UnsupportedModelError, match="pooling last"):
        satchel.export(decoder, task="feature-extraction")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    with pytest.raises(CheckpointError):
        satchel.export(tmp_path / "broken", task="feature-extraction")
    with pytest.raises(ConfigError, match="task"):
        satchel.export(decoder, task="fill-mask")


def test_damaged_rules_are_told() -> None:
    for wrong in ({"max_length": "8"}, {"max_texts": 0}, {"prompts": {"a": 1}}):
        with pytest.raises(satchel.SatchelError):
            TextRules.from_dict(wrong)
