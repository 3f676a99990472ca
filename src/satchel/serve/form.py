"""Which form an answer is to have: OpenAI's ``response_format``, llama.cpp's and vLLM's fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from satchel.errors import ConfigError
from satchel.llm.grammar import Grammar
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.models import ServedModel

_FORMATS = ("text", "json_object", "json_schema")


def read_form(fields: Fields, model: ServedModel) -> Grammar | None:
    """The one form that a request asks for, ready for use; None for plain text."""
    asked = [*_response_format(fields), *_others(fields)]
    if not asked:
        return None
    if len(asked) > 1:
        raise ApiError(
            400, f"{asked[0][0]} and {asked[1][0]} do not go together", param=asked[1][0]
        )
    param, kind, value = asked[0]
    return make_form(model, param, kind, value)


def make_form(model: ServedModel, param: str, kind: str, value: Any) -> Grammar:
    """ApiError that names the field if it cannot be made."""
    grammars = model.llm.grammars
    makers: dict[str, Callable[[Any], Grammar]] = {
        "json": grammars.schema,
        "regex": grammars.regex,
        "grammar": grammars.grammar,
        "choice": grammars.choice,
    }
    if kind in ("regex", "grammar") and not isinstance(value, str):
        raise ApiError(400, f"{param} must be a text", param=param)
    try:
        return makers[kind](value)
    except ConfigError as error:
        raise ApiError(400, f"{param}: {error.message}", param=param) from None


def _response_format(fields: Fields) -> list[tuple[str, str, Any]]:
    part = fields.part("response_format")
    if part is None:
        return []
    kind = part.choice("type", _FORMATS, "")
    if kind == "text":
        return []
    if kind == "json_object":
        given = part.get("schema")  # llama.cpp's way
        return [("response_format", "json", {"type": "object"} if given is None else given)]
    # OpenAI's has the schema in an object with a name; that of the responses API has it beside.
    inner = part.part("json_schema") or part
    schema = inner.get("schema")
    if schema is None:
        raise part.wrong("json_schema.schema", "is missing")
    return [("response_format.json_schema.schema", "json", schema)]


def _others(fields: Fields) -> list[tuple[str, str, Any]]:
    found = [
        (name, kind, fields.get(name))
        for name, kind in (
            ("json_schema", "json"),  # llama.cpp
            ("grammar", "grammar"),
            ("guided_json", "json"),  # vLLM before 0.12
            ("guided_regex", "regex"),
            ("guided_grammar", "grammar"),
            ("guided_choice", "choice"),
        )
    ]
    if (part := fields.part("structured_outputs")) is not None:  # vLLM
        names = ("json", "regex", "grammar", "choice")
        found += [(f"structured_outputs.{name}", name, part.get(name)) for name in names]
    return [(name, kind, value) for name, kind, value in found if value not in (None, "")]
