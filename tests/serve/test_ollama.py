"""Ollama's own client against this server: chat, generate, forms, tools, lists and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ollama import AsyncClient, Client, ResponseError

from satchel import LLM
from serve.conftest import Running
from serve.test_openai_client import MESSAGES, alone
from serve.test_tools import TOOLS

OPTIONS: Any = {"temperature": 0, "num_predict": 12}


def test_chat_whole_and_as_a_stream(server: Running, program: Path) -> None:
    client = Client(server.url)
    wanted = alone(program, max_new_tokens=12)
    made = client.chat("tiny", MESSAGES, options=OPTIONS)
    assert made.message.content == wanted.text and made.message.role == "assistant"
    assert made.done and made.done_reason == "length"
    assert made.prompt_eval_count == wanted.stats.prompt_tokens and made.eval_count == 12
    parts = list(client.chat("tiny:latest", MESSAGES, options=OPTIONS, stream=True))
    assert "".join(part.message.content or "" for part in parts) == wanted.text
    assert [part.done for part in parts].index(True) == len(parts) - 1


def test_generate(server: Running, program: Path) -> None:
    client = Client(server.url)
    llm = LLM(program)
    asked = llm.generate("Hi!", system="Be brief.", max_new_tokens=12, sampling=llm.chat_sampling)
    made = client.generate("tiny", "Hi!", system="Be brief.", options=OPTIONS)
    assert made.response == asked.finish().text
    raw = client.generate("tiny", "ab", raw=True, options=OPTIONS, stream=True)
    wanted = llm.generate("ab", raw=True, max_new_tokens=12).finish()
    assert "".join(part.response for part in raw) == wanted.text


def test_forms_and_tools(server: Running) -> None:
    client = Client(server.url)
    form = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
    form["additionalProperties"] = False
    made = client.chat("tiny", MESSAGES, format=form, options={"num_predict": 60})
    assert isinstance(json.loads(made.message.content or "")["yes"], bool)
    told: Any = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [{"function": {"name": "count", "arguments": {}}}]},
        {"role": "tool", "tool_name": "count", "content": "7"},
    ]
    after = client.chat("tiny", told, tools=TOOLS, options=OPTIONS)
    assert after.eval_count == 12


def test_calls_of_tools_are_told() -> None:
    from satchel.serve.chat_answer import ChatAnswer
    from satchel.serve.ollama import _calls
    from satchel.serve.tool_calls import ToolCalls

    answer = ChatAnswer(None, ToolCalls(["add"]))
    answer.push('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>')
    answer.finish()
    called = {"function": {"name": "add", "arguments": {"a": 1}}}
    assert _calls(answer.message) == {"tool_calls": [called]}


def test_what_there_is(server: Running) -> None:
    client = Client(server.url)
    (model,) = client.list().models
    assert model.model == "tiny" and model.size and model.details
    assert client.ps().models[0].model == "tiny"
    shown = client.show("tiny")
    assert shown.template and shown.capabilities and "completion" in shown.capabilities


def test_errors_are_those_that_the_client_knows(server: Running) -> None:
    client = Client(server.url)
    with pytest.raises(ResponseError, match="there is no model 'llama3'") as error:
        client.chat("llama3", MESSAGES)
    assert error.value.status_code == 404
    with pytest.raises(ResponseError, match="temperature"):
        client.generate("tiny", "x", options={"temperature": -1})
    picture: Any = [{"role": "user", "content": "What is it?", "images": [b"x"]}]
    with pytest.raises(ResponseError, match="text only"):
        client.chat("tiny", picture)
    with pytest.raises(ResponseError, match=r"^/api/pull is not there"):
        client.pull("llama3")


def test_without_a_text_the_model_is_there_already(server: Running) -> None:
    client = Client(server.url)
    for stream in (False, True):
        chat: Any = client.chat("tiny", [], stream=stream)
        text: Any = client.generate("tiny", "", stream=stream)
        (chatted,), (told,) = (list(chat), list(text)) if stream else ([chat], [text])
        assert chatted.done and chatted.done_reason == told.done_reason == "load"
        assert not chatted.message.content and not told.response


def test_the_asynchronous_client(server: Running, program: Path) -> None:
    import asyncio

    async def ask() -> str:
        stream = await AsyncClient(server.url).chat("tiny", MESSAGES, options=OPTIONS, stream=True)
        return "".join([part.message.content or "" async for part in stream])

    assert asyncio.run(ask()) == alone(program, max_new_tokens=12).text
