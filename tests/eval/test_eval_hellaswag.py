"""HellaSwag from a plain file, against transformers' own likelihoods."""

from __future__ import annotations

import bz2
from pathlib import Path

import numpy as np
import pytest

import satchel
from satchel.errors import EvaluationError
from satchel.eval import EvaluationOptions, evaluate
from satchel.eval.hellaswag import Item, read_hellaswag
from support.tiny_models import logits_of, tiny_model, write_checkpoint

CONTEXTS = [
    "Cooking: He cracks an egg. he",
    "Golf: A man swings. the ball",
    "Chess: She wins. then",
]
ENDINGS = [
    ["pours it in.", "sits.", "jumps over the whole house at once.", "sleeps"],
    ["flies.", "sinks in the water of the lake", "is eaten", "wins the game of chess."],
    ["they shake hands.", "it rains", "all pieces fall from the table.", "a fish"],
]
RIGHT = [0, 1, 2]


def lines() -> list[str]:
    parts = zip(CONTEXTS, RIGHT, ENDINGS, strict=True)
    return [line for context, right, endings in parts for line in (context, str(right), *endings)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hellaswag.txt"
    path.write_text("\n".join(lines()) + "\n", encoding="utf-8")
    return path


def test_accuracies_are_those_of_transformers(file: Path, tmp_path: Path) -> None:
    """Every byte is a token, so a context and its continuation are simply put together."""
    for seed in range(3):
        model = tiny_model("llama", seed)
        folder = write_checkpoint(tmp_path / f"model{seed}", model)
        output = tmp_path / f"{seed}.satchel"
        program = satchel.export(folder, output, recipe="fp32", context=128)
        tokenizer = satchel.LLM(program).tokenizer
        wanted = np.zeros(2)
        for context, endings, right in zip(CONTEXTS, ENDINGS, RIGHT, strict=True):
            sums = []
            for ending in endings:
                tokens = np.array(tokenizer.encode(f"{context} {ending}"), np.int32)
                logits = logits_of(model, tokens).astype(np.float64)
                logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
                chosen = logits[np.arange(len(tokens) - 1), tokens[1:]]
                sums.append(chosen[-len(f" {ending}") :].sum())
            lengths = [len(e) for e in endings]
            wanted += [np.argmax(sums) == right, np.argmax(np.divide(sums, lengths)) == right]
        found = evaluate(program, EvaluationOptions(hellaswag=file))["tasks"]["hellaswag"]["device"]
        assert [found["acc"], found["acc_norm"]] == list(wanted / 3), seed
        assert found["items"] == 3


def test_items_are_read_from_plain_and_compressed_files(file: Path, tmp_path: Path) -> None:
    items = read_hellaswag(file)
    assert items[1] == Item(CONTEXTS[1], tuple(ENDINGS[1]), 1)
    assert read_hellaswag(file, limit=2) == items[:2]
    packed = tmp_path / "packed.bz2"
    packed.write_bytes(bz2.compress(file.read_bytes()))
    assert read_hellaswag(packed) == items


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has 0 lines"),
        ("\n".join(lines()[:-1]).encode(), "has 17 lines, and HellaSwag has 6"),
        ("\n".join([*lines()[:6], "context", "4", *"abcd"]).encode(), "no item at line 7"),
        ("\n".join(["context", "0", "a", "", "c", "d"]).encode(), "no item at line 1"),
        (b"\xff\xfe", "is not UTF-8"),
        (bz2.compress(b"some text")[:-8], "is not UTF-8"),
    ],
)
def test_other_files_are_errors(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(EvaluationError, match=said):
        read_hellaswag(tmp_path / "x.txt")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match=r"no\.txt cannot be read: No such file"):
        read_hellaswag(tmp_path / "no.txt")
