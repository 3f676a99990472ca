"""/completion and its like, as clients of llama.cpp's server use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from satchel import LLM
from serve.conftest import Running
from serve.test_server import request


def ask(server: Running, **fields: Any) -> Any:
    status, document = request(server, "/completion", fields)[:2]
    assert status == 200, document
    return json.loads(document) if isinstance(document, str) else document


def test_a_completion_whole_and_as_a_stream(server: Running, program: Path) -> None:
    alone = LLM(program).generate("ab", raw=True, max_new_tokens=8).finish()
    made = ask(server, prompt="ab", n_predict=8, temperature=0, return_tokens=True)
    assert made["content"] == alone.text and made["tokens"] == alone.tokens
    assert made["stop"] and made["stop_type"] == "limit" and not made["truncated"]
    assert made["tokens_evaluated"] == alone.stats.prompt_tokens
    assert made["timings"]["predicted_n"] == 8 == made["generation_settings"]["n_predict"]
    text = request(server, "/completion", {"prompt": "ab", "n_predict": 8, "stream": True})[1]
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert "".join(event["content"] for event in events) == alone.text
    assert [t for event in events for t in event["tokens"]] == alone.tokens
    assert [event["stop"] for event in events].index(True) == len(events) - 1


def test_prompts_of_every_kind(server: Running, program: Path) -> None:
    tokens = LLM(program).tokenizer.encode("ab")
    options: Any = {"n_predict": 4, "temperature": 0}
    one = ask(server, prompt="ab", **options)["content"]
    assert ask(server, prompt=tokens, **options)["content"] == one
    assert ask(server, prompt={"prompt_string": "ab"}, **options)["content"] == one
    several = ask(server, prompt=["ab", tokens, {"prompt_string": "ab"}], **options)
    assert [each["content"] for each in several] == [one] * 3
    assert [each["index"] for each in several] == [0, 1, 2]
    mixed = ask(server, prompt=[*tokens, "cd"], **options)
    assert mixed["tokens_evaluated"] == len(tokens) + 2


def test_probabilities_stops_and_biases(server: Running) -> None:
    made = ask(server, prompt="ab", n_predict=3, n_probs=4, temperature=0)
    assert len(made["completion_probabilities"]) == 3
    for token in made["completion_probabilities"]:
        best = token["top_logprobs"]
        assert len(best) == 4 and best[0]["id"] == token["id"]
        assert token["logprob"] == best[0]["logprob"] <= 0
    (token,) = request(server, "/tokenize", {"content": "q"})[1]["tokens"]
    for bias in ([[token, 100]], {str(token): 100}, [["q", 100.0], [0, False]]):
        biased = ask(server, prompt="ab", n_predict=2, logit_bias=bias, temperature=0)
        assert biased["content"] == "qq"
    text = ask(server, prompt="ab", n_predict=16, temperature=0)["content"]
    stopped = ask(server, prompt="ab", n_predict=16, temperature=0, stop=[text[3:5]])
    assert stopped["stop_type"] == "word" and stopped["stopping_word"] == text[3:5]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": []},
        {"prompt": [["a", None]]},
        {"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}},
        {"prompt": "a", "n_predict": -2},
        {"prompt": "a", "logit_bias": "x"},
        {"prompt": "a", "logit_bias": [[1]]},
        {"prompt": "a", "logit_bias": [[1, None]]},
    ],
)
def test_what_is_refused(server: Running, fields: Any) -> None:
    status, document = request(server, "/completion", fields)[:2]
    assert status == 400 and document["error"]["message"]


def test_what_the_server_is_like(server: Running) -> None:
    props = request(server, "/props")[1]
    assert props["total_slots"] == 8 and props["default_generation_settings"]["n_ctx"] == 1024
    slots = json.loads(request(server, "/slots")[1])
    assert len(slots) == 8 and not any(slot["is_processing"] for slot in slots)
