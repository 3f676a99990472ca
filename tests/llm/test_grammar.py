"""Texts of a given form: whatever the weights say, the text has it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel

import satchel
from satchel import LLM
from satchel.errors import ConfigError
from support.tiny_llm import write_tiny_llm

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["river", "lake"]},
        "length": {"type": "integer", "minimum": 0, "maximum": 9999},
        "deep": {"type": "boolean"},
    },
    "required": ["kind", "length", "deep"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """Random weights: nothing but the grammar makes sense."""
    folder = tmp_path_factory.mktemp("grammar")
    checkpoint = write_tiny_llm(folder / "m")
    return LLM(satchel.export(checkpoint, folder / "m.satchel", context=256))


class River(BaseModel):
    name: str
    length: int


@pytest.mark.parametrize("seed", range(5))
def test_a_json_schema(llm: LLM, seed: int) -> None:
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        answer = llm.generate("hi", schema=schema, temperature=1.5, seed=seed).finish()
        made = json.loads(answer.text)
        assert list(made) == ["kind", "length", "deep"]
        assert made["kind"] in ("river", "lake") and 0 <= made["length"] <= 9999
        assert answer.stop_reason == "end_token"


def test_forced_tokens_take_no_step_of_their_own(llm: LLM) -> None:
    answer = llm.generate("hi", schema=SCHEMA, temperature=0).finish()
    assert answer.stats.lookahead.steps < len(answer.tokens) / 2
    assert answer.stats.lookahead.off_because
    # With logprobs each token is asked for, and the text is the same.
    asked = llm.generate("hi", schema=SCHEMA, temperature=0, logprobs=1).finish()
    assert asked.tokens == answer.tokens
    assert len(asked.logprobs) == len(asked.tokens)


def test_formats_that_are_not_known_say_nothing(llm: LLM) -> None:
    schema = {
        "type": "object",
        "properties": {
            "format": {"type": "string", "format": "file path", "maxLength": 2},
            "is": {"const": {"format": "file path"}},
        },
        "required": ["format", "is"],
        "additionalProperties": False,
    }
    answer = llm.generate("Write.", schema=schema, max_new_tokens=60).finish()
    assert json.loads(answer.text)["is"] == {"format": "file path"}
    with pytest.raises(ConfigError):  # known ones are held, so this cannot be
        llm.generate("Write.", schema={"type": "string", "format": "date", "maxLength": 2}).finish()


def test_a_pydantic_class(llm: LLM) -> None:
    answer = llm.generate("hi", schema=River, temperature=1.0, seed=1, max_new_tokens=200).finish()
    if answer.stop_reason == "end_token":
        River.model_validate_json(answer.text)
    assert answer.text.startswith('{"name": "')


def test_a_regular_expression_and_grammars(llm: LLM) -> None:
    for seed in range(5):
        options: dict[str, Any] = {"temperature": 1.0, "seed": seed}
        date = llm.generate("hi", regex=r"[0-9]{4}-[0-9]{2}-[0-9]{2}", **options).finish()
        assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date.text)
        lark = llm.generate("hi", grammar='start: "yes" | "no" /[!?]/', **options).finish()
        assert lark.text in ("yes", "no!", "no?")
        gbnf = llm.generate("hi", grammar='root ::= ("ab" | "c") "d"', **options).finish()
        assert gbnf.text in ("abd", "cd")


def test_several_at_once_are_those_alone(llm: LLM) -> None:
    prompts = ["a", "b" * 70, "c"]
    alone = [llm.generate(p, schema=SCHEMA, temperature=0).finish().tokens for p in prompts]
    together = llm.generate_many(prompts, schema=SCHEMA, temperature=0)
    assert [g.tokens for g in together] == alone


def test_a_limit_inside_what_is_forced(llm: LLM) -> None:
    whole = llm.generate("hi", schema=SCHEMA, temperature=0).finish()
    for most in range(1, len(whole.tokens)):
        cut = llm.generate("hi", schema=SCHEMA, temperature=0, max_new_tokens=most).finish()
        assert cut.tokens == whole.tokens[:most] and cut.stop_reason == "max_new_tokens"
        held = llm.session.tokens
        assert (
            held
            == [*llm.chat_tokens([{"role": "user", "content": "hi"}]), *whole.tokens][: len(held)]
        )


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"schema": "{"}, "not JSON"),
        ({"schema": {"type": "nonsense"}}, "not supported"),
        ({"schema": {"type": "string", "pattern": "("}}, "not supported"),
        ({"schema": {"contains": {"type": "string"}, "type": "array"}}, "contains"),
        ({"schema": [1]}, "object"),
        ({"regex": "("}, "not supported"),
        ({"grammar": "start: nowhere"}, "grammar"),
        ({"regex": "a", "grammar": "start: /a/"}, "do not go together"),
    ],
)
def test_forms_that_cannot_be(llm: LLM, form: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        llm.generate("hi", **form)
