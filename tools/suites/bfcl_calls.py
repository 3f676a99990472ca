"""The calls of BFCL's cases, in every family's form, cut into pieces, are found as they were.

    git clone https://github.com/ShishirPatil/gorilla
    python tools/suites/bfcl_calls.py gorilla/berkeley-function-call-leaderboard/bfcl_eval/data

Each case has functions and the calls that answer its question. They are written as Qwen and Hermes,
Granite, Phi, Llama 3 and FunctionGemma write calls, come in pieces as a model's text does, and must
be read as the same calls. With --forms, each function's parameters are also made a form that
answers are held to; what is refused is counted with its reason.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from satchel import LLM
from satchel.errors import ConfigError
from satchel.serve.chat_answer import ChatAnswer
from satchel.serve.tool_calls import ToolCalls

Call = tuple[str, dict[str, Any]]
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None, "String": "string"}


def gemma(value: Any) -> str:
    if isinstance(value, str):
        return f"<escape>{value}<escape>"
    if isinstance(value, list):
        return f"[{','.join(map(gemma, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def documents(calls: Sequence[Call], arguments: str = "arguments") -> list[str]:
    return [json.dumps({"name": name, arguments: given}) for name, given in calls]


FAMILIES: dict[str, Callable[[Sequence[Call]], str]] = {
    "Qwen, Hermes, SmolLM3": lambda calls: "\n".join(
        f"<tool_call>\n{each}\n</tool_call>" for each in documents(calls)
    ),
    "Granite": lambda calls: f"<|tool_call|>[{', '.join(documents(calls))}]",
    "Phi": lambda calls: f"<|tool_call|>[{', '.join(documents(calls))}]<|/tool_call|>",
    "Llama 3": lambda calls: "; ".join(documents(calls, "parameters")),
    "FunctionGemma": lambda calls: "".join(
        f"<start_function_call>call:{name}{gemma(given)}<end_function_call>"
        for name, given in calls
    ),
}


def cases(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]], list[Call]]]:
    """Name, functions and calls of each case that has an answer of calls."""
    for path in sorted((folder / "possible_answer").glob("BFCL_v4_*.json")):
        questions = folder / path.name
        if not questions.exists():
            continue
        functions = {}
        for line in questions.read_text(encoding="utf-8").splitlines():
            document = json.loads(line)
            functions[document["id"]] = document.get("function") or []
        for line in path.read_text(encoding="utf-8").splitlines():
            document = json.loads(line)
            if calls := list(_calls(document["ground_truth"])):
                yield document["id"], functions.get(document["id"], []), calls


def _calls(truth: Any) -> Iterator[Call]:
    """Of each argument the first of the values that are right."""
    for each in truth:
        if not isinstance(each, dict):  # of several turns: Python, which no family writes
            return
        for name, arguments in each.items():
            if isinstance(arguments, dict) and all(isinstance(v, list) for v in arguments.values()):
                yield name, {key: values[0] for key, values in arguments.items() if values}


def read(text: str, names: Sequence[str], seed: str) -> tuple[str | None, list[Call]]:
    """Content and calls of a text that comes in pieces of one to nine letters."""
    answer, pieces, at = ChatAnswer(None, ToolCalls(names)), random.Random(seed), 0
    while at < len(text):
        size = pieces.randint(1, 9)
        answer.push(text[at : at + size])
        at += size
    answer.finish()
    calls = [call["function"] for call in answer.message.get("tool_calls", [])]
    return answer.message["content"], [(c["name"], json.loads(c["arguments"])) for c in calls]


def json_schema(parameters: Any) -> Any:
    """BFCL's names of types as JSON Schema's."""
    if isinstance(parameters, list):
        return [json_schema(each) for each in parameters]
    if not isinstance(parameters, dict):
        return parameters
    made = {key: json_schema(value) for key, value in parameters.items()}
    kind = made.get("type")
    if isinstance(kind, str) and kind in TYPES:
        made["type"] = TYPES[kind]
        if made["type"] is None:
            del made["type"]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--forms", metavar="MODEL", help="also make forms, for its tokenizer")
    given = parser.parse_args()
    right: Counter[str] = Counter()
    wrong, total, forms = 0, 0, Counter[str]()
    llm = LLM(given.forms) if given.forms else None
    for name, functions, calls in cases(given.folder):
        total += 1
        names = [each["name"] for each in functions] or [call[0] for call in calls]
        for family, write in FAMILIES.items():
            if read(write(calls), names, name) == (None, calls):
                right[family] += 1
            else:
                wrong += 1
                print(f"{name}, {family}: {write(calls)[:300]}", file=sys.stderr)
        for function in functions if llm else ():
            try:
                assert llm is not None
                llm.grammars.schema(json_schema(function["parameters"]))
                forms["accepted"] += 1
            except ConfigError as error:
                forms[f"refused: {error.message[:120]}"] += 1
    print(f"{total} cases")
    for family, count in right.items():
        print(f"{count:5d}  {family}")
    for what, count in forms.most_common(20):
        print(f"{count:5d}  forms {what}")
    sys.exit(1 if wrong or not total else 0)


if __name__ == "__main__":
    main()
