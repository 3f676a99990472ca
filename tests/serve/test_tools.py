"""Calls of tools: in every family's form, however the text is cut, and through OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import satchel
from satchel import LLM
from satchel.serve import App, Settings
from satchel.serve.chat import prepare
from satchel.serve.chat_answer import ChatAnswer
from satchel.serve.fields import Fields
from satchel.serve.tool_calls import ToolCalls
from serve.conftest import Running, serving
from support import tiny_llm
from support.tiny_llm import write_tiny_llm

ADD = '{"name": "add", "arguments": {"a": 1, "b": "x}\\"{"}}'
MUL = '{"name": "mul", "arguments": {}}'
GEMMA = 'call:add{a:1,b:<escape>x}"{<escape>}'
CALLS = [("add", {"a": 1, "b": 'x}"{'}), ("mul", {})]


def read(text: str, size: int, names: tuple[str, ...] = ("add", "mul"), **options: Any) -> Any:
    answer = ChatAnswer(None, ToolCalls(names, **options))
    for at in range(0, len(text), size):
        answer.push(text[at : at + size])
    answer.finish()
    message = answer.message
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", [])
    ]
    return message["content"], calls


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        # Qwen, Hermes, SmolLM3
        (f"<tool_call>\n{ADD}\n</tool_call>", None, CALLS[:1]),
        (f"Let me see.\n<tool_call>\n{ADD}\n</tool_call>\n<tool_call>\n{MUL}\n</tool_call>",
         "Let me see.", CALLS),
        # Granite and Phi, with the mark and where it is a special token
        (f"<|tool_call|>[{ADD}, {MUL}]", None, CALLS),
        (f"<|tool_call|>[{ADD}, {MUL}]<|/tool_call|>", None, CALLS),
        (f"[{ADD}, {MUL}]", None, CALLS),
        # Llama 3
        (ADD.replace("arguments", "parameters"), None, CALLS[:1]),
        (f"<|python_tag|>{ADD}; {MUL}".replace("arguments", "parameters"), None, CALLS),
        ('{"type": "function", "name": "mul", "parameters": {}}', None, CALLS[1:]),
        # FunctionGemma
        (f"<start_function_call>{GEMMA}<end_function_call>", None, CALLS[:1]),
        (f"Yes.\n<start_function_call>{GEMMA}<end_function_call><start_function_call>call:mul{{}}"
         "<end_function_call>", "Yes.", CALLS),
        (f"<start_function_call>{GEMMA}", None, CALLS[:1]),  # where the end is the end token
        ("<start_function_call>call:add{a", "call:add{a", []),
        # the other way round, and as OpenAI writes them
        ('{"arguments": {}, "name": "mul"}', None, CALLS[1:]),
        ('{"type": "function", "function": {"name": "mul", "arguments": "{}"}}', None, CALLS[1:]),
        # no calls
        ("Just 1 < 2 and <b>.", "Just 1 < 2 and <b>.", []),
        ('{"name": "other", "arguments": {}}', '{"name": "other", "arguments": {}}', []),
        ('{"a": [1, 2]} is JSON', '{"a": [1, 2]} is JSON', []),
        ("[see below]", "[see below]", []),
        ("<tool_call>\nnot JSON", "\nnot JSON", []),
        ("ends with <tool_", "ends with <tool_", []),
        ("", "", []),
    ],
)  # fmt: skip
def test_forms_of_calls(text: str, content: str | None, calls: Any) -> None:
    for size in (1, 2, 3, 7, 1000):
        assert read(text, size) == (content, calls), size


def test_letters_of_all_scripts_are_not_escaped() -> None:
    for text in (
        '{"arguments": {"n": "株"}, "name": "mul"}',
        "<start_function_call>call:mul{n:株}",
    ):
        parser = ToolCalls(["mul"])
        deltas = [*parser.push(text), *parser.finish()]
        written = "".join(d["tool_calls"][0]["function"]["arguments"] for d in deltas)
        assert written == '{"n": "株"}'


def test_one_call_where_only_one_is_wanted() -> None:
    assert read(f"[{ADD}, {MUL}]", 3, most=1) == (None, CALLS[:1])


def test_arguments_come_as_they_are_written() -> None:
    parser = ToolCalls(["add"])
    deltas = [delta for char in f"<tool_call>{ADD}</tool_call>" for delta in parser.push(char)]
    assert len(deltas) > 10
    assert deltas[0]["tool_calls"][0]["function"] == {"name": "add", "arguments": ""}


TEMPLATE = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Works.",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("count", "wait")
]
MESSAGES: Any = [{"role": "user", "content": "Count!"}]


@pytest.fixture(scope="module")
def with_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tools")
    checkpoint = write_tiny_llm(folder / "m", TEMPLATE, max_position_embeddings=2048)
    program = satchel.export(checkpoint, folder / "tiny.satchel", context=2048)
    with serving(App(program)) as running:
        yield running


@pytest.fixture(params=["template", "without"])
def either(request: Any, with_template: Running, server: Running) -> Running:
    """A model whose template takes tools, and one that is told in words."""
    return with_template if request.param == "template" else server


def test_a_call_that_must_be(either: Running) -> None:
    for choice, names in (
        ("required", ("count", "wait")),
        ({"type": "function", "function": {"name": "wait"}}, ("wait",)),
    ):
        asked: Any = {
            "model": "tiny",
            "messages": MESSAGES,
            "tools": TOOLS,
            "tool_choice": choice,
            "temperature": 1.0,
            "seed": 1,
            "max_tokens": 200,
        }
        made = either.client.chat.completions.create(**asked)
        (choice_made,) = made.choices
        assert choice_made.finish_reason == "tool_calls"
        assert choice_made.message.content is None and choice_made.message.tool_calls
        (call,) = choice_made.message.tool_calls
        assert call.type == "function" and call.function.name in names
        assert 0 <= json.loads(call.function.arguments)["n"] <= 99
        with either.client.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion().choices[0]
        assert streamed.message.tool_calls
        assert streamed.message.tool_calls[0].function.name == call.function.name
        assert streamed.message.tool_calls[0].function.arguments == call.function.arguments
        assert streamed.finish_reason == "tool_calls"


def test_calls_and_results_are_read_back(either: Running) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "count", "arguments": '{"n": 1}'}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    made = either.client.chat.completions.create(
        model="tiny", messages=messages, tools=TOOLS, max_tokens=5
    )
    assert made.usage and made.usage.prompt_tokens > 200  # tools, call and result are all in it
    wrong = json.loads(json.dumps(messages))
    wrong[1]["tool_calls"][0]["function"]["arguments"] = "{"
    with pytest.raises(openai.BadRequestError) as error:
        either.client.chat.completions.create(model="tiny", messages=wrong)
    assert error.value.param == "messages[1].tool_calls[0].function.arguments"


def test_the_template_gets_the_tools(with_template: Running, server: Running) -> None:
    import urllib.request

    def prompt(running: Running, **fields: Any) -> str:
        def post(path: str, body: Any) -> Any:
            ask = urllib.request.Request(running.url + path, json.dumps(body).encode())
            return json.load(urllib.request.urlopen(ask))

        tokens = post("/tokenize", {"messages": MESSAGES, **fields})["tokens"]
        return str(post("/detokenize", {"tokens": tokens})["content"])

    assert '"name": "count"' in prompt(with_template, tools=TOOLS)
    assert "answer with nothing but" in prompt(server, tools=TOOLS)
    for running in (with_template, server):
        assert "count" not in prompt(running, tools=TOOLS, tool_choice="none")
        assert prompt(running) == prompt(running, tools=[])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "web"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "x"}}}, "tool_choice"),
    ],
)
def test_tools_that_are_wrong(server: Running, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.client.chat.completions.create(model="tiny", messages=MESSAGES, extra_body=fields)
    assert error.value.param == param


def test_marks_that_are_special_tokens_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text, then the mark that a plain text would not show, then the call."""
    monkeypatch.setattr(tiny_llm, "SPECIAL", [*tiny_llm.SPECIAL, "<|tool_call|>"])
    checkpoint = write_tiny_llm(tmp_path / "m", TEMPLATE)
    llm = LLM(satchel.export(checkpoint, tmp_path / "m.satchel", context=512))
    mark = llm.tokenizer.id_of("<|tool_call|>")
    assert mark is not None and not llm.tokenizer.is_text(mark)
    app = App({"tiny": llm})
    try:
        model = app.models.find("tiny")
        ask = prepare(model, Fields({"messages": MESSAGES, "tools": TOOLS}), Settings())
        (generation,), (answer,) = ask.generations, ask.answers
        call = '[{"name": "wait", "arguments": {"n": 1}}]'
        for token in [*llm.tokenizer.encode("Well."), mark, *llm.tokenizer.encode(call)]:
            answer.push(generation._stream.push(token))
        answer.finish()
    finally:
        app.close()
    assert answer.message["content"] == "Well."
    (called,) = answer.message["tool_calls"]
    assert called["function"] == {"name": "wait", "arguments": '{"n": 1}'}


def test_some_of_the_tools(server: Running) -> None:
    def ask(mode: str, *names: str) -> Any:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        return server.client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            tools=TOOLS,
            tool_choice={
                "type": "allowed_tools",
                "allowed_tools": {"mode": mode, "tools": tools},  # type: ignore[typeddict-item]
            },
            max_tokens=60,
        )

    (call,) = ask("required", "wait").choices[0].message.tool_calls
    assert call.function.name == "wait"
    assert ask("auto", "wait").choices[0].message
    with pytest.raises(openai.BadRequestError, match="not among the tools"):
        ask("auto", "wait", "sing")
