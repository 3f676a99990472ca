"""/v1/responses through OpenAI's client, and adapters by name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from pydantic import BaseModel

import satchel
from exporter.lora_files import write_lora
from satchel import LLM
from satchel.serve import App
from satchel.serve.errors import ApiError
from satchel.serve.responses_store import Kept, ResponseStore
from serve.conftest import Running, serving
from serve.test_openai_client import MESSAGES, alone
from serve.test_tools import TOOLS
from support.tiny_llm import write_tiny_llm

FLAT: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]


def test_text_whole_and_as_a_stream(server: Running, program: Path) -> None:
    wanted = alone(program, max_new_tokens=20)
    asked: Any = {"model": "tiny", "input": "Name a river.", "instructions": "Be brief."}
    made = server.client.responses.create(**asked, max_output_tokens=20)
    assert made.output_text == wanted.text
    assert made.status == "incomplete" and made.incomplete_details
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.usage and made.usage.output_tokens == 20
    assert made.usage.input_tokens == wanted.stats.prompt_tokens
    same = server.client.responses.create(model="tiny", input=MESSAGES, max_output_tokens=20)
    assert same.output_text == wanted.text
    events = list(server.client.responses.create(**asked, max_output_tokens=20, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.incomplete"
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(deltas) == wanted.text
    assert events[-1].response.output_text == wanted.text


def test_the_clients_own_stream_and_parsing(server: Running) -> None:
    class Small(BaseModel):
        yes: bool

    made = server.client.responses.parse(model="tiny", input="Well?", text_format=Small)
    assert isinstance(made.output_parsed, Small) and made.status == "completed"
    with server.client.responses.stream(model="tiny", input="Well?", text_format=Small) as stream:
        final = stream.get_final_response()
    assert final.output_text == made.output_text


def test_calls_of_tools(server: Running) -> None:
    asked: Any = {
        "model": "tiny",
        "input": "Count!",
        "tools": FLAT,
        "tool_choice": "required",
        "temperature": 1.0,
        "extra_body": {"seed": 1},
    }
    (call,) = server.client.responses.create(**asked).output
    assert call.type == "function_call" and call.name in ("count", "wait")
    assert json.loads(call.arguments)["n"] < 100
    events = list(server.client.responses.create(**asked, stream=True))
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    told = [
        {"role": "user", "content": "Count!"},
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "done"},
    ]
    after = server.client.responses.create(
        model="tiny", input=told, tools=FLAT, tool_choice="none", max_output_tokens=5
    )
    assert after.output_text is not None and after.usage and after.usage.output_tokens == 5


def test_going_on_from_a_response(server: Running) -> None:
    client = server.client.responses
    first = client.create(model="tiny", input="Name a river.", max_output_tokens=6)
    second = client.create(
        model="tiny",
        input="And a lake?",
        previous_response_id=first.id,
        instructions="Be brief.",
        max_output_tokens=6,
    )
    told: Any = [
        {"role": "user", "content": "Name a river."},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And a lake?"},
    ]
    by_hand = client.create(model="tiny", input=told, instructions="Be brief.", max_output_tokens=6)
    assert second.output_text == by_hand.output_text
    assert second.usage and by_hand.usage
    assert second.usage.input_tokens == by_hand.usage.input_tokens
    assert second.previous_response_id == first.id
    streamed = client.create(
        model="tiny", input="Why?", previous_response_id=second.id, max_output_tokens=3, stream=True
    )
    third = list(streamed)[-1].response
    assert third.usage.input_tokens > second.usage.input_tokens

    assert client.retrieve(first.id).output_text == first.output_text
    listed = client.input_items.list(second.id).data
    assert [item.role for item in listed] == ["user", "assistant", "user"]
    client.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.retrieve(first.id)
    unkept = client.create(model="tiny", input="x", store=False, max_output_tokens=2)
    with pytest.raises(openai.BadRequestError) as error:
        client.create(model="tiny", input="x", previous_response_id=unkept.id)
    assert error.value.code == "previous_response_not_found"


def test_a_call_of_a_tool_goes_on_from_its_response(server: Running) -> None:
    asked: Any = {"model": "tiny", "tools": FLAT, "max_output_tokens": 60}
    client = server.client.responses
    first = client.create(input="Count!", tool_choice="required", **asked)
    (call,) = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    after = client.create(
        input=[result], previous_response_id=first.id, **{**asked, "max_output_tokens": 4}
    )
    by_hand = client.create(
        input=[{"role": "user", "content": "Count!"}, call.model_dump(exclude_none=True), result],
        **{**asked, "max_output_tokens": 4},
    )
    assert after.output_text == by_hand.output_text


def test_the_oldest_responses_make_room() -> None:
    store = ResponseStore(most_bytes=400)
    for number in range(8):
        store.keep(Kept({"id": str(number), "output": [{"text": "x" * 80}]}, []))
    assert store.find("7").items == [{"text": "x" * 80}]
    with pytest.raises(ApiError):
        store.find("0")
    store.delete("7")
    with pytest.raises(ApiError):
        store.delete("7")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "x", "temperature": -1}, "temperature"),
    ],
)
def test_what_is_refused(server: Running, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.client.responses.create(model="tiny", **fields)
    assert error.value.param == param


def test_adapters_are_models_of_their_own(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    checkpoint = write_tiny_llm(tmp_path / "tiny")
    tensors = load_file(checkpoint / "model.safetensors")
    lora = write_lora(tmp_path / "fr", SimpleNamespace(state_dict=lambda: tensors), alpha=16)
    program = satchel.export(
        checkpoint, tmp_path / "tiny.satchel", context=128, adapters={"fr": lora}
    )
    texts = {
        adapter: LLM(program, adapter=adapter)
        .generate("ab", raw=True, max_new_tokens=10)
        .finish()
        .text
        for adapter in (None, "fr")
    }
    assert texts[None] != texts["fr"]
    with serving(App(program)) as server:
        assert [m.id for m in server.client.models.list()] == ["tiny", "tiny:fr"]
        for _ in range(2):
            for name, adapter in (("tiny", None), ("tiny:fr", "fr")):
                made = server.client.completions.create(model=name, prompt="ab", max_tokens=10)
                assert made.choices[0].text == texts[adapter] and made.model == name
