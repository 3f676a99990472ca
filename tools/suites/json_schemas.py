"""Every JSON Schema of a folder is accepted, with output that is valid, or refused with a reason.

    git clone https://github.com/guidance-ai/jsonschemabench
    pip install jsonschema
    python tools/suites/json_schemas.py jsonschemabench/data
    python tools/suites/json_schemas.py jsonschemabench/data --every 200 --url http://127.0.0.1:8080

Without --url no model runs: what the grammar allows is chosen by a fixed preference for tokens that
end things, so that texts are short. It is the server's own grammar, token by token and with what is
forced. With --url a server's model writes the text; one that is cut counts apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from pattern_examples import examples

from satchel import LLM
from satchel.errors import ConfigError, ExecutionError, RemoteError
from satchel.llm.grammar import Grammar
from satchel.remote import Remote

LONGEST = 2000  # tokens
# What patterns and formats wait for: an address, a date, a path, a version.
SEPARATORS = "@.:-/0a_#+T 1Z="
# A quote ends a text before a bracket can be part of it.
ENDING = {'"}': 8.0, '"]': 8.0, '"': 7.0, "}": 6.0, "]": 6.0, ",": 3.0}


def wish(text: str) -> float:
    """How gladly a token is taken: what ends something, then letters, and nothing that goes on."""
    if text.strip() in ENDING:
        return ENDING[text.strip()]
    return -10.0 if "," in text else float(text.isascii() and text.isalnum())


class Walker:
    """Writes texts without a model."""

    def __init__(self, llm: LLM) -> None:
        self._tokenizer = llm.tokenizer
        size = llm.tokenizer.vocab_size
        texts = [llm.tokenizer.decode([token]) for token in range(size)]
        own = np.array([wish(text) for text in texts], np.float32)
        # Other whims at each step, lest it goes round in circles.
        self._wishes = np.random.default_rng(0).gumbel(0, 0.5, (61, size)).astype(np.float32)
        self._wishes[::2] += own
        # The same letter by letter, a separator in turn before others.
        alone = np.array([text.strip() in ENDING or len(text) == 1 for text in texts])
        letters = np.where(alone, own, -20.0).astype(np.float32)
        self._letters = np.tile(letters, (len(SEPARATORS), 1))
        for turn, letter in enumerate(SEPARATORS):
            self._letters[turn, [text == letter for text in texts]] = 5.0
        for token in llm.tokenizer.spec.eos_ids:
            self._wishes[:, token] = self._letters[:, token] = 100.0

    def write(self, grammar: Grammar, schema: Any) -> str | None:
        """What the grammar allows; None if it does not come to an end, with other whims too."""
        known = [self._tokenizer.encode(f'{json.dumps(e)[1:-1]}"', False) for e in examples(schema)]
        whims, letters = self._wishes, self._letters
        for wishes, texts in ((whims, []), (letters, []), (whims, known), (whims[7:], known)):
            if (text := self._try(grammar, wishes, texts)) is not None:
                return text
        return None

    def _try(self, grammar: Grammar, wishes: Any, texts: Sequence[list[int]]) -> str | None:
        """``texts`` are ends of strings, which are taken where they fit."""
        guide, tokens = grammar.guide(), list[int]()
        while len(tokens) < LONGEST:
            tokens += guide.forced(64)
            if guide.finished:
                break
            if text := next((text for text in texts if guide.would_take(text)), None):
                for token in text:
                    guide.take(token)
                tokens += text
                continue
            token = int(guide.masked(wishes[len(tokens) % len(wishes)]).argmax())
            guide.take(token)
            if self._tokenizer.is_end(token):
                break
            tokens.append(token)
        else:
            return None
        return self._tokenizer.decode(tokens)


def from_server(remote: Remote, schema: Any) -> str | None:
    """What the server's model writes; None if it was cut. ConfigError if it is refused."""
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    fields = {
        "messages": [{"role": "user", "content": "Give an example."}],
        "response_format": form,
        "temperature": 1.0,
        "max_tokens": LONGEST,
    }
    text, reason = "", None
    try:
        for event in remote.chat(fields):
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                reason = choice["finish_reason"] or reason
    except RemoteError as error:
        raise ConfigError(error.message) from None
    return text if reason == "stop" else None


def outcome(schema: Any, write: Any) -> tuple[str, str]:
    """One word, and what there is to say about it."""
    try:
        text = write(schema)
    except (ConfigError, ExecutionError) as error:
        return "refused", error.message
    if text is None:
        return "cut", ""
    kind = validator_for(schema, Draft202012Validator) if isinstance(schema, dict) else None
    try:
        (kind or Draft202012Validator)(schema).validate(json.loads(text))
    except ValidationError as error:
        return "invalid", f"{error.message[:200]} in {text[:200]}"
    except (ValueError, RecursionError) as error:
        return "invalid", f"{error} in {text[:200]}"
    except (SchemaError, Exception) as error:  # references to other hosts, patterns of other kinds
        return "unjudged", f"{type(error).__name__}: {str(error)[:150]}"
    return "valid", ""


def schemas(folder: Path, every: int) -> Iterator[tuple[str, Any]]:
    for path in sorted(folder.rglob("*.json"))[::every]:
        yield f"{path.parent.name}/{path.name}", json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th schema")
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer is used")
    parser.add_argument("--url", help="a server that writes the texts")
    parser.add_argument("--details", type=Path, metavar="FILE", help="a line of JSON for each")
    given = parser.parse_args()
    if given.url:
        remote = Remote(given.url)

        def write(schema: Any) -> str | None:
            return from_server(remote, schema)
    else:
        llm = LLM(given.model)
        walker = Walker(llm)

        def write(schema: Any) -> str | None:
            return walker.write(llm.grammars.schema(schema), schema)

    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    lines, slowest = [], (0.0, "")
    for name, schema in schemas(given.folder, given.every):
        started = time.perf_counter()
        word, about = outcome(schema, write)
        seconds = time.perf_counter() - started
        slowest = max(slowest, (seconds, name))
        counts[word] += 1
        if word in ("refused", "unjudged"):
            reasons[f"{word}: {about.split(':', 1)[-1].strip()[:90]}"] += 1
        lines.append(json.dumps({"name": name, "is": word, "about": about, "seconds": seconds}))
        if word == "invalid":
            print(f"{name}: {about}", file=sys.stderr, flush=True)
    if given.details:
        given.details.write_text("\n".join(lines) + "\n")
    print(f"{sum(counts.values())} schemas: {dict(counts)}")
    print(f"the slowest took {slowest[0]:.1f} s: {slowest[1]}")
    for reason, count in reasons.most_common(25):
        print(f"{count:5d}  {reason}")
    sys.exit(1 if counts["invalid"] else 0)


if __name__ == "__main__":
    main()
