"""JSON Schemas are held to: those of JSONSchemaBench where they lie (SATCHEL_JSON_SCHEMAS is the
folder of a checkout), and some of our own that have what most of them have."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from satchel import LLM

SUITES = Path(__file__).parents[2] / "tools" / "suites"
FOLDER = os.environ.get("SATCHEL_JSON_SCHEMAS")
SAMPLE = 100  # each so manieth

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OURS: dict[str, Any] = {
    "anywhere": {"type": "string", "pattern": r"\d{4}-\d{2}-\d{2}T\d{2}"},
    "address": {"type": "string", "format": "email"},
    "words": {"type": "string", "pattern": "QTABLE_INT|QTABLE_DATE"},
    "negated": {"type": "string", "pattern": r"^[^@\s]+@[^@.\s]+(\.[^@.\s]+)+$"},
    "list": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
    "tree": {
        "$defs": {"node": {**NAMED, "properties": {"name": {"type": "string"}, "next": {}}}},
        "anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}],
    },
    "choice": {"enum": ["a b", 3, None, {"x": [1]}]},
    "keys": {"type": "object", "patternProperties": {r"\.png$": {"type": "number"}}},
    "refused": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
}


@pytest.fixture(scope="module")
def suite(program: Path) -> Any:
    pytest.importorskip("llguidance")
    pytest.importorskip("jsonschema")
    sys.path.insert(0, str(SUITES))
    import json_schemas

    llm = LLM(program)
    walker = json_schemas.Walker(llm)

    def judged(schema: Any) -> tuple[str, str]:
        return json_schemas.outcome(
            schema, lambda each: walker.write(llm.grammars.schema(each), each)
        )

    yield judged, json_schemas.schemas
    sys.path.remove(str(SUITES))


@pytest.mark.parametrize("name", OURS)
def test_ours(suite: Any, name: str) -> None:
    word, about = suite[0](OURS[name])
    assert word == ("refused" if name == "refused" else "valid"), about
    assert name != "refused" or "uniqueItems" in about


@pytest.mark.skipif(not FOLDER, reason="SATCHEL_JSON_SCHEMAS names no folder")
def test_a_sample_of_json_schema_bench(suite: Any) -> None:
    judged, schemas = suite
    found = {name: judged(schema) for name, schema in schemas(Path(FOLDER or ""), SAMPLE)}
    assert len(found) > 10
    assert {n: o for n, o in found.items() if o[0] not in ("valid", "refused", "unjudged")} == {}
    assert all(about for word, about in found.values() if word == "refused")
