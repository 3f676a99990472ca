"""Any value in any place of a request: an answer, or an error that is the client's."""

from __future__ import annotations

import copy
import http.client
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from serve.conftest import Running

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": "x", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "a", "content": "y"},
        ],
        **{"max_tokens": 2, "temperature": 1, "top_p": 0.9, "n": 1, "stop": ["a"], "seed": 1},
        **{"logit_bias": {"5": 1}, "logprobs": True, "top_logprobs": 2, "tool_choice": "auto"},
        "tools": [{"type": "function", "function": TOOL}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}},
    },
    "/v1/completions": {"prompt": ["a", "b"], "max_tokens": 2, "echo": True, "logprobs": 1},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        **{"max_output_tokens": 2, "instructions": "x", "text": {"format": {"type": "text"}}},
    },
    "/api/chat": {
        "messages": [{"role": "user", "content": "hi"}],
        **{"model": "tiny", "stream": False, "format": "json", "keep_alive": "5m"},
        "options": {"num_predict": 2, "temperature": 1.0, "stop": ["x"]},
    },
    "/completion": {
        **{"prompt": "hi", "n_predict": 2, "temperature": 0.5, "stop": ["q"], "grammar": ""},
        **{"logit_bias": [[1, 2.0]], "cache_prompt": True, "samplers": ["top_k"]},
    },
    "/tokenize": {"content": "abc"},
    "/detokenize": {"tokens": [1, 2]},
}
RECURSIVE = {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}
HUGE = 10**400
ODD = [None, True, 0, -1, 1.5, HUGE, 1 << 63, 1e308, "", "\0", "\ud800", "x" * 3000, [], [[]]]
ODD += [{}, {"a": 1}, [None], [1, "a"], "../../etc/passwd", RECURSIVE, [{"role": 5, "content": 5}]]


def _places(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield (*where, key)
        yield from _places(item, (*where, key))


def _with(document: dict[str, Any], place: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    holder: Any = changed
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = copy.deepcopy(odd)
    return changed


def answer(server: Running, path: str, body: Any) -> tuple[int, str]:
    """The status and the text, which may be a stream."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text[:300]


@pytest.mark.parametrize("path", GOOD)
def test_any_value_in_any_place(path: str, server: Running) -> None:
    rng = random.Random(1)
    document = GOOD[path]
    tried = [(place, odd) for place in _places(document) for odd in ODD]
    # All that were wrong once, and some of the others.
    tried = [each for each in tried if each[1] in (HUGE, "\ud800")] + rng.sample(
        tried, min(60, len(tried))
    )
    for place, odd in tried:
        status, text = answer(server, path, _with(document, place, odd))
        assert status in (200, 400, 404), (place, ascii(odd)[:80], text)


def test_a_schema_that_refers_to_itself_alone(server: Running) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "response_format": RECURSIVE}
    status, text = answer(server, "/v1/chat/completions", body)
    assert status == 400, text
