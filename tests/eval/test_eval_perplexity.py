"""Perplexity against transformers, for the same windows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

import satchel
from satchel.errors import EvaluationError
from satchel.eval import EvaluationOptions, evaluate
from satchel.eval.likelihood import log_likelihoods, score_continuation, score_tokens
from satchel.eval.windows import split_windows
from satchel.llm.llm import LLM
from satchel.llm.session import Session
from satchel.runtime.program import Program
from support.tiny_models import logits_of, tiny_model, write_checkpoint

TEXT = "Pack a model once and carry it to any chip; then measure what it lost on the way. " * 3


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tokenizer adds a beginning-of-text token, 256."""
    folder = write_checkpoint(tmp_path_factory.mktemp("ppl") / "model", model)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 256)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def text_file(folder: Path) -> Path:
    (folder.parent / "text.txt").write_text(TEXT)
    return folder.parent / "text.txt"


def transformers_nll(model: Any, windows: list[tuple[list[int], int]]) -> tuple[float, int]:
    """The mean over windows of (tokens, first counted), by torch's own cross entropy."""
    import torch

    total, count = 0.0, 0
    for tokens, first in windows:
        logits = torch.from_numpy(logits_of(model, np.array(tokens[:-1], np.int32)))
        targets = torch.tensor(tokens[1:])
        losses = torch.nn.functional.cross_entropy(logits.double(), targets, reduction="none")
        total += float(losses[first - 1 :].sum())
        count += len(tokens) - first
    return total / count, count


@pytest.mark.parametrize("mode", ["hybrid", "kv"])
@pytest.mark.parametrize("stride", [None, 24, 7])
def test_perplexity_is_transformers(
    model: Any, folder: Path, text_file: Path, tmp_path: Path, mode: str, stride: int | None
) -> None:
    """Programs without prefill_forward too. Every byte of the text is a token."""
    program = satchel.export(
        folder, tmp_path / "fp32.satchel", recipe="fp32", mode=mode, context=64, prefill_ar_len=13
    )
    tokenizer = LLM(program).tokenizer
    ids = tokenizer.encode(TEXT, add_bos=False)
    assert len(ids) == len(TEXT)
    windows, reached = [], 0
    for start in range(0, len(ids), stride or 39):
        end = min(start + 39, len(ids))
        windows.append(([256, *ids[start:end]], 1 + reached - start))
        reached = end
        if end == len(ids):
            break
    wanted, count = transformers_nll(model, windows)
    options = EvaluationOptions(text=text_file, window=40, stride=stride)
    found = evaluate(program, options)["phases"]["device"]
    assert found["tokens"] == count == len(TEXT)
    assert abs(found["nll"] - wanted) < 1e-5
    assert abs(found["ppl"] / math.exp(wanted) - 1) < 1e-4


def test_without_a_lead_the_first_token_of_a_window_does_not_count(
    model: Any, folder: Path, tmp_path: Path
) -> None:
    path = satchel.export(folder, tmp_path / "fp32.satchel", recipe="fp32", context=64)
    session = Session(Program(path))
    tokens = [ord(c) % 250 for c in TEXT]
    windows = split_windows(tokens, [], 50)
    wanted, count = transformers_nll(model, [(list(w.tokens), 1) for w in windows])
    assert count == len(tokens) - len(windows)
    total = 0.0
    for window in windows:
        session.rewind(0)
        total -= score_tokens(session, window.tokens, window.first)[0]
    assert abs(total / count - wanted) < 1e-5


def test_a_window_is_capped_by_the_context(program: Path, text: Path) -> None:
    assert evaluate(program, EvaluationOptions(text=text, limit=200))["window"] == 64


def test_log_likelihoods_of_large_logits() -> None:
    """Neither large logits nor improbable tokens become infinite."""
    logits = np.array([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]], np.float32)
    found, likeliest = log_likelihoods(logits, [1, 2])
    np.testing.assert_allclose(found, [-1e4, -math.log(3)])
    assert likeliest.tolist() == [False, False]


@pytest.mark.parametrize("first", [0, 1, 9, 10, 11, 29, 32])
def test_logits_of_some_tokens_are_those_of_feeding_them_one_by_one(
    program: Path, first: int
) -> None:
    """Blocks are of 10 tokens; those before the first wanted one are fed and give nothing."""
    tokens = [(7 * i + 3) % 250 for i in range(33)]
    single = Session(Program(program), mode="kv")
    wanted = [single.feed([token]) for token in tokens]
    session = Session(Program(program))
    found = np.concatenate(list(session.logits_of(tokens, first)))
    np.testing.assert_array_equal(found, wanted[first:])
    assert session.tokens == tokens


def test_what_the_cache_holds_is_not_computed_again(program: Path) -> None:
    """And gives what a fresh session gives."""
    session = Session(Program(program))
    context = list(range(60, 90))
    fed: list[int] = []
    run = session._run
    session._run = lambda part: fed.extend(part.tokens) or run(part)  # type: ignore[method-assign,func-returns-value]
    endings = [[1, 2, 3], [1, 4, 5, 6], [7]]
    for ending in endings:
        fresh = score_continuation(Session(Program(program)), context, ending)
        assert score_continuation(session, context, ending) == fresh
    # The whole context once; then its last token, whose logits are needed, and the endings.
    assert fed == [*context, 1, 2, context[-1], 1, 4, 5, context[-1]]


def test_a_context_that_is_too_long_loses_its_beginning(program: Path) -> None:
    session = Session(Program(program))
    context = [i % 250 for i in range(100)]
    long = score_continuation(session, context, [1, 2])
    assert long == score_continuation(Session(Program(program)), context[-63:], [1, 2])


def test_logits_that_are_not_finite_are_an_error(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(Program(program))
    run = session._run
    monkeypatch.setattr(session, "_run", lambda part: run(part) * np.nan)
    with pytest.raises(EvaluationError, match="not finite"):
        score_tokens(session, [1, 2, 3], 1)
