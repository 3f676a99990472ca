"""/v1/embeddings of encoders, through OpenAI's and Ollama's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ollama import Client

import satchel
from satchel.serve import App, Settings
from serve.conftest import Running, serving
from serve.test_server import request
from support.tiny_bert import write_tiny_bert

TEXTS = ["the river in italy", "a", "the po"] * 4


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> satchel.TextEncoder:
    folder = tmp_path_factory.mktemp("encoders")
    bert = write_tiny_bert(folder / "bert")
    path = satchel.export(bert, folder / "bert.satchel", task="feature-extraction")
    return satchel.TextEncoder(path)


@pytest.fixture(scope="module")
def server(encoder: satchel.TextEncoder, program: Path) -> Iterator[Running]:
    app = App({"tiny": program}, Settings(), encoders={"bert": encoder})
    with serving(app) as running:
        yield running


def test_vectors_of_length_1(server: Running, encoder: satchel.TextEncoder) -> None:
    wanted = encoder.embed(TEXTS)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    made = server.client.embeddings.create(model="bert", input=TEXTS)
    found = np.array([each.embedding for each in made.data], np.float32)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert made.usage.prompt_tokens == sum(len(encoder.tokens(text)) for text in TEXTS)
    by_tokens = server.client.embeddings.create(model="bert", input=encoder.tokens("a"))
    np.testing.assert_allclose(by_tokens.data[0].embedding, wanted[1], atol=1e-6)
    short = server.client.embeddings.create(model="bert", input="a", dimensions=4)
    assert len(short.data[0].embedding) == 4
    ollama = Client(server.url).embed("bert", TEXTS)
    np.testing.assert_allclose(np.array(ollama.embeddings), wanted, atol=1e-6)


def test_it_is_listed_and_others_answer(server: Running) -> None:
    listed = {one.id: one for one in server.client.models.list().data}
    assert list(listed) == ["tiny", "bert"]
    assert server.client.models.retrieve("bert").id == "bert"
    made = server.client.completions.create(model="tiny", prompt="ab", max_tokens=4)
    assert made.choices[0].finish_reason in ("length", "stop")


@pytest.mark.parametrize(
    "fields",
    [{}, {"input": []}, {"input": [["a"]]}, {"input": "the river " * 60}, {"input": [1] * 41}],
)
def test_what_is_refused(server: Running, fields: Any) -> None:
    status, document, _ = request(server, "/v1/embeddings", {"model": "bert", **fields})
    assert status == 400 and document["error"]["param"] == "input"
    cut = {"model": "bert", "input": "the river " * 60, "truncate": True}
    assert request(server, "/v1/embeddings", cut)[0] == 200


def test_alone_it_needs_no_name(encoder: satchel.TextEncoder) -> None:
    with serving(App({}, encoders={"bert": encoder})) as running:
        status, document, _ = request(running, "/v1/embeddings", {"input": "a"})
        assert status == 200 and len(document["data"][0]["embedding"]) == 32
        assert request(running, "/v1/completions", {"prompt": "a"})[0] == 404
