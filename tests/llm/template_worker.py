"""Chat templates put together at random and rendered; prints counts as JSON."""

from __future__ import annotations

import argparse
import json
import random
import time

from satchel.errors import TemplateError
from satchel.llm.chat_template import ChatTemplate

TALK = [{"role": "user", "content": "hello " * 40}, {"role": "assistant", "content": "x"}]
ATOMS = ["messages", "x", "ns.a", "messages[0].content", "'ab'", "9", "[1, 2]", "{'k': x}", "none"]
OPERATORS = "+ - * ** % ~ // / == < in and or".split()
FILTERS = (
    "upper trim length list tojson tojson(indent=9) join('-') center(99999999) indent(99) first "
    "last string reverse replace('a','bb') int unique sort batch(3,x) slice(4) map('upper') "
    "groupby(0) format(x) sum round(x) items dictsort default(x) select max wordcount".split()
)
METHODS = (
    "replace('a','aa'*99) ljust(9**9) zfill(x) split('l') join(messages) format(x,x) strip('lo') "
    "rfind(x) expandtabs(9**9) encode() to_bytes(9**9) items() get('k') upper() index(x)".split()
)


def expression(rng: random.Random, depth: int) -> str:
    if depth <= 0:
        return rng.choice(ATOMS)
    inner = expression(rng, depth - 1)
    other = expression(rng, depth - 2)
    return rng.choice(
        [
            f"({inner} {rng.choice(OPERATORS)} {other})",
            f"({inner} | {rng.choice(FILTERS)})",
            f"({inner}).{rng.choice(METHODS)}",
            f"[{inner}, {other}, {inner}]",
            f"({inner})[::2]",
            f"({inner} if {other} else x)",
            f"m({inner})",
        ]
    )


def template(rng: random.Random, depth: int) -> str:
    if depth <= 0:
        return "{{ " + expression(rng, rng.randrange(5)) + " }}" + "text " * rng.randrange(9)
    inner, value = template(rng, depth - 1), expression(rng, rng.randrange(4))
    return rng.choice(
        [
            "{% for x in " + value + " %}" + inner + "{% endfor %}",
            "{% for x in range("
            + rng.choice(["9", "99", "99999"])
            + ") %}"
            + inner
            + "{% endfor %}",
            "{% set ns.a = " + value + " %}" + inner + "{{ ns.a }}",
            "{% if " + value + " %}" + inner + "{% else %}" + inner + "{% endif %}",
            "{% set x %}" + inner + "{% endset %}{{ x }}",
            inner + inner,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    start = "{% set ns = namespace(a='x') %}{% set x = 3 %}"
    start += (
        "{% macro m(y) %}{{ y }}{% if y is string and y | length < 9 %}{{ m(y ~ y) }}{% endif %}"
    )
    start += "{% endmacro %}"
    counts = {"templates": 0, "rendered": 0, "slowest": 0.0}
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        source = start + template(rng, rng.randrange(4))
        begin = time.monotonic()
        try:
            text = ChatTemplate(source).render(TALK)
            assert isinstance(text, str) and len(text) < 1 << 26, source
            counts["rendered"] += 1
        except TemplateError as error:
            assert error.message, source
        took = time.monotonic() - begin
        assert took < 60, source
        counts["templates"] += 1
        counts["slowest"] = max(counts["slowest"], took)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
