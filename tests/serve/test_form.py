"""Answers of a given form, as OpenAI's client and those of other servers ask for them."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from satchel.cli.main import main
from serve.conftest import Running

MESSAGES: Any = [{"role": "user", "content": "Name a river."}]


class River(BaseModel):
    kind: bool
    lengths: list[int]


def schema() -> dict[str, Any]:
    made = River.model_json_schema()
    made["properties"]["lengths"] |= {"maxItems": 3}
    made["properties"]["lengths"]["items"] |= {"maximum": 999, "minimum": 0}
    return made | {"additionalProperties": False}


def ask(server: Running, **fields: Any) -> str:
    made = server.client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=1.0, seed=2, max_tokens=300, **fields
    )
    assert made.choices[0].finish_reason == "stop"
    return made.choices[0].message.content or ""


def test_a_json_schema_whole_and_as_a_stream(server: Running) -> None:
    format: Any = {"type": "json_schema", "json_schema": {"name": "river", "schema": schema()}}
    text = ask(server, response_format=format)
    assert len(River.model_validate_json(text).lengths) <= 3
    chunks = server.client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        temperature=1.0,
        seed=2,
        max_tokens=300,
        response_format=format,
        stream=True,
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == text


def test_the_clients_own_parsing(server: Running) -> None:
    class Small(BaseModel):
        yes: bool

    made = server.client.chat.completions.parse(
        model="tiny", messages=MESSAGES, response_format=Small, max_tokens=50
    )
    assert isinstance(made.choices[0].message.parsed, Small)


def test_what_other_servers_clients_ask_for(server: Running) -> None:
    integer = {"type": "integer", "minimum": 10, "maximum": 99}
    for extra in (
        {"guided_json": integer},
        {"json_schema": integer},
        {"structured_outputs": {"json": integer}},
        {"grammar": "root ::= [1-9] [0-9]"},
        {"structured_outputs": {"regex": "[1-9][0-9]"}},
        {"guided_choice": ["10", "99"]},
        {"response_format": {"type": "json_object", "schema": integer}},
    ):
        assert re.fullmatch("[1-9][0-9]", ask(server, extra_body=extra)), extra
    made = server.client.completions.create(
        model="tiny", prompt="x", extra_body={"guided_regex": "[ab]{5}"}
    )
    assert re.fullmatch("[ab]{5}", made.choices[0].text)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
         "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
         "response_format.json_schema.schema"),
        ({"grammar": "start: nowhere"}, "grammar"),
        ({"grammar": "start: /a/", "guided_regex": "a"}, "guided_regex"),
        ({"guided_regex": 7}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
    ],
)  # fmt: skip
def test_forms_that_are_refused(server: Running, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.client.chat.completions.create(model="tiny", messages=MESSAGES, extra_body=fields)
    assert error.value.param == param


def test_on_the_command_line(program: Any, tmp_path: Any, capsys: Any) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema()))
    options = ["--temperature", "1", "--seed", "4", "--max-new-tokens", "300"]
    assert main(["run", str(program), "hi", "--schema", f"@{file}", *options]) == 0
    River.model_validate_json(capsys.readouterr().out)
    assert main(["chat", str(program), "--prompt", "hi", "--regex", "[xy]{4}", *options]) == 0
    assert re.fullmatch("[xy]{4}", capsys.readouterr().out.strip())
    assert main(["run", str(program), "hi", "--grammar", "start: 7", *options]) == 1
    assert "grammar" in capsys.readouterr().err
