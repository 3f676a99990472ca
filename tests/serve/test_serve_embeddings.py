"""/v1/embeddings and /api/embed through OpenAI's and Ollama's clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from ollama import Client

import satchel
from satchel import LLM
from satchel.serve import App, Settings
from serve.conftest import Running, serving
from serve.test_server import request, wait_until
from support.tiny_llm import write_tiny_llm

TEXTS = ["a river", "the longest river in Italy " * 8, "x"]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    checkpoint = write_tiny_llm(folder / "tiny", max_position_embeddings=2048)
    options: Any = {"context": 1024, "prefill_ar_len": 64, "pooling": "last"}
    return satchel.export(checkpoint, folder / "tiny.satchel", **options)


@pytest.fixture(scope="module")
def with_vectors(vectors: Path) -> Iterator[Running]:
    with serving(App(vectors, Settings(queue=4))) as running:
        yield running


def test_as_without_a_server(with_vectors: Running, vectors: Path) -> None:
    llm = LLM(vectors)
    wanted = [llm.embed(text) for text in TEXTS]
    client = with_vectors.client
    made = client.embeddings.create(model="tiny", input=TEXTS)
    assert [each.index for each in made.data] == [0, 1, 2]
    for each, vector in zip(made.data, wanted, strict=True):
        np.testing.assert_array_equal(np.array(each.embedding, np.float32), vector)
    tokens = [llm.tokenizer.encode(text) for text in TEXTS]
    assert made.usage.prompt_tokens == sum(map(len, tokens))
    plain = client.embeddings.create(model="tiny", input=tokens[1], encoding_format="float")
    assert plain.data[0].embedding == made.data[1].embedding
    short = client.embeddings.create(model="tiny", input="x", dimensions=8).data[0].embedding
    first = wanted[2][:8]
    np.testing.assert_allclose(short, first / np.linalg.norm(first), atol=1e-6)
    found = Client(with_vectors.url).embed("tiny", TEXTS)
    np.testing.assert_allclose(np.array(found.embeddings), np.array(wanted), atol=1e-6)
    older = Client(with_vectors.url).embeddings("tiny", TEXTS[1])  # /api/embeddings
    np.testing.assert_allclose(np.array(older.embedding), wanted[1], atol=1e-6)


def test_beside_answers_and_without_leaks(with_vectors: Running, vectors: Path) -> None:
    """Those who read and those who embed do not change each other's results."""
    wanted = LLM(vectors).generate("ab", raw=True, max_new_tokens=150).finish().text
    vector = LLM(vectors).embed(TEXTS[1])
    texts: list[str] = []

    def ask() -> None:
        made = with_vectors.client.completions.create(model="tiny", prompt="ab", max_tokens=150)
        texts.append(made.choices[0].text)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(5):
        made = with_vectors.client.embeddings.create(model="tiny", input=TEXTS[1])
        np.testing.assert_array_equal(np.array(made.data[0].embedding, np.float32), vector)
    thread.join()
    assert texts == [wanted]
    engine = with_vectors.engine
    before = engine.llm.sessions.first.instance.cache_usage.sequences
    for _ in range(3):
        with_vectors.client.embeddings.create(model="tiny", input=TEXTS)
    assert engine.llm.sessions.first.instance.cache_usage.sequences == before


def test_who_goes_away_frees_the_model(with_vectors: Running) -> None:
    client = with_vectors.client.with_options(timeout=0.05, max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        client.embeddings.create(model="tiny", input=["word " * 180] * 200)
    started = time.monotonic()
    wait_until(lambda: not with_vectors.engine._errands, 20)
    assert time.monotonic() - started < 20
    assert with_vectors.client.embeddings.create(model="tiny", input="x").data


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [[1, "a"]]}, "input"),
        ({"input": "x" * 3000}, "input"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "x", "dimensions": 65}, "dimensions"),
    ],
)
def test_what_is_refused(with_vectors: Running, fields: Any, param: str) -> None:
    status, document, _ = request(with_vectors, "/v1/embeddings", fields)
    assert status == 400 and document["error"]["param"] == param


def test_models_that_have_none_say_so(server: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="no embeddings.*--pooling last"):
        server.client.embeddings.create(model="tiny", input="x")
