"""Templates that would take all memory or never end, and those that only look as if they did."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.errors import TemplateError
from satchel.llm.chat_template import ChatTemplate

USER = [{"role": "user", "content": "hello " * 50}]
LARGE = "{% set a = 'x' * 1000000 %}{% set b = 'x' * 999999 ~ 'y' %}"
NESTED = "{% set ns = namespace(a=['x']) %}{% for i in range(40) %}"
BOMBS = {
    "ljust": "{{ 'x'.ljust(10**11) }}",
    "zfill": "{{ '1'.zfill(10**11) }}",
    "center": "{{ 'x' | center(10**11) }}",
    "indent": "{{ 'a\\nb' | indent(10**11) }}",
    "expandtabs": "{{ ('\\t' * 1000).expandtabs(10**9) }}",
    "replace": LARGE + "{{ a.replace('', a) }}",
    "replace filter": LARGE + "{{ a | replace('x', a) }}",
    "join": LARGE + "{{ a.join(a) }}",
    "join filter": LARGE + "{{ range(99999) | join(a) }}",
    "translate": LARGE + "{{ a.translate({120: a}) }}",
    "to_bytes": "{{ (1).to_bytes(10**11, 'big') }}",
    "percent": "{{ '%99999999999d' % 1 }}",
    "percent with a width": "{{ '%*d' % (10**10, 1) }}",
    "percent by name": LARGE + "{{ ('%(a)s' * 10000) % {'a': a} }}",
    "format filter": "{{ '%0999999999d' | format(1) }}",
    "format": "{{ '{:>99999999999}'.format(1) }}",
    "format again": LARGE + "{{ ('{0}' * 100000).format(a) }}",
    "tilde": "{% set ns = namespace(a='x') %}{% for i in range(60) %}"
    "{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a | length }}",
    "squares": "{% set ns = namespace(a=9) %}{% for i in range(100) %}"
    "{% set ns.a = ns.a * ns.a %}{% endfor %}{{ ns.a > 1 }}",
    "power": "{{ 2 ** -99999999999 }}",
    "batch": "{{ [1] | batch(10**10, 'x') | list }}",
    "slice": "{{ [1] | slice(10**10) | list }}",
    "round": "{{ 1.5 | round(10**9, 'floor') }}",
    "sum": "{{ ([[1]] * 10000) | sum(start=[]) | length }}",
    "json": "{{ [1] | tojson(indent=10**11) }}",
    "deep json": "{% set ns = namespace(a=range(9999) | list) %}{% for i in range(90) %}"
    "{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a | tojson(indent=1000) }}",
    "date": "{{ strftime_now('%9999999999Y') }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops with a test": "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}"
    "{% endfor %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(100) }}",
    "recursive loops": "{% for a in [[1, 1]] recursive %}{{ loop([[1], [1]]) }}{% endfor %}",
    "plain text": "{% for i in range(99999) %}" + "lorem " * 10000 + "{% endfor %}",
    "text in a block": "{% set a %}{% for i in range(99999) %}"
    + "lorem " * 10000
    + "{% endfor %}{% endset %}{{ a | length }}",
    "lists in lists": NESTED + "{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
    "tuples compared": NESTED + "{% set ns.a = (ns.a, ns.a) %}{% endfor %}{{ ns.a == ns.a }}",
    "dictionaries": NESTED + "{% set ns.a = {'x': ns.a, 'y': ns.a} %}{% endfor %}{{ ns.a }}",
    "arguments": "{% macro m() %}{{ m(varargs, varargs) }}{% endmacro %}{{ m('x' * 100000) }}",
    "slices": LARGE + "{{ [" + ",".join(f"a[:-{i}]" for i in range(1, 200)) + "] | length }}",
    "searched backwards": LARGE + "{{ a.rfind(b[:500000] ~ 'z') }}",
    "stripped": LARGE + "{{ a.strip('y' * 900000 ~ 'x') }}",
    "compared": LARGE + "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% if a ~ '' == b %}{% endif %}{% endfor %}{% endfor %}",
    "parentheses": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "a long sum": "{{ " + "1+" * 30000 + "1 }}",
    "blocks in blocks": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "a long template": "x" * (1 << 20),
}
RENDER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from satchel.errors import TemplateError
from satchel.llm.chat_template import ChatTemplate
for path in sys.argv[1:]:
    try:
        ChatTemplate(open(path, encoding="utf-8").read()).render([{"content": "hello"}])
    except TemplateError as error:
        assert error.message and "MemoryError" not in error.message, error
    else:
        raise SystemExit(f"{path} was rendered")
"""


def test_bombs_are_refused_in_little_memory_and_time(tmp_path: Path) -> None:
    """In a process that may have 1 GB; each of them takes far more, or hours, if it is let."""
    paths = []
    for name, source in BOMBS.items():
        path = tmp_path / f"{name}.jinja"
        path.write_text(source, "utf-8")
        paths.append(str(path))
    begin = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", RENDER, *paths],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert time.monotonic() - begin < 120


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("{{ 'ab'.center(6) }}|{{ 'ab' | center(6) }}", "  ab  |  ab  "),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ '%5.2f|%s' % (1.5, 'x') }}", " 1.50|x"),
        ("{{ '{:>4}|{a}'.format(7, a='x') }}", "   7|x"),
        ("{{ 'a' ~ 1 ~ none ~ [1] }}", "a1None[1]"),
        ("{% for i in range(3) %}{{ 'a,b'.split(',')[1] }}{{ loop.length }}{% endfor %}", "b3b3b3"),
        ("{% set c = cycler(1, 2) %}{% for i in range(3) %}{{ c.next() }}{% endfor %}", "121"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% for x in [[1, [2]]] recursive %}{{ x[0] }}{% endfor %}", "1"),
        ("{% autoescape true %}<b>{{ '<' }}{% endautoescape %}", "<b>&lt;"),
        ("{{ [3, 1] | sort | join('-') }}{{ [1, 2] | sum }}{{ 2.55 | round(1) }}", "1-332.5"),
        ("{{ [1, 2, 3] | batch(2) | list }}{{ 'x' in ('x', 'y') }}", "[[1, 2], [3]]True"),
        ("{% filter upper %}{% call(x) m() %}{{ x }}{% endcall %}{% endfilter %}", "A"),
    ],
)
def test_what_is_bounded_still_works(call: str, result: str) -> None:
    macro = "{% macro m() %}{{ caller('a') }}{% endmacro %}"
    assert ChatTemplate(macro + call).render(USER) == result


def test_a_long_conversation_gets_more() -> None:
    """Two megabytes of text in a thousand messages, in a template that looks back at each one."""
    talk = [{"role": "user", "content": f"{i} " * 300} for i in range(1000)]
    source = (
        "{% set ns = namespace(seen=[]) %}{% for m in messages %}"
        "{% set ns.seen = ns.seen + [m.role] %}{{ m.content.strip().split(' ') | join('_') }}"
        "{% for n in messages[:5] %}{{ n.role }}{% endfor %}{% endfor %}"
    )
    assert len(ChatTemplate(source).render(talk)) > 1_000_000


# Pieces of templates, put together at random: errors or texts, in bounded time.
_names = st.sampled_from(["messages", "x", "ns.a", "messages[0].content", "'ab'", "9", "[1, 2]"])
_filters = st.sampled_from(
    "upper trim length list tojson join('-') center(9999999) indent(99) first last string reverse "
    "replace('a','bb') int unique sort batch(3) map('upper') groupby(0) format(1)".split()
)
_expressions = st.recursive(
    _names,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+ * ** % ~ - // == in and".split()), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(inner, _filters).map(lambda t: f"({t[0]} | {t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]"),
        inner.map(lambda e: f"({e}).replace('a', 'aa' * 99)"),
        inner.map(lambda e: f"({e})[::2]"),
    ),
    max_leaves=8,
)
_templates = st.recursive(
    st.one_of(st.text(max_size=5), _expressions.map(lambda e: "{{ " + e + " }}")),
    lambda inner: st.one_of(
        st.tuples(_expressions, inner).map(
            lambda t: "{% for x in " + t[0] + " %}" + t[1] + "{% endfor %}"
        ),
        st.tuples(_expressions, inner).map(
            lambda t: "{% set ns.a = " + t[0] + " %}" + t[1] + "{{ ns.a }}"
        ),
        inner.map(lambda t: "{% for x in range(9999) %}" + t + "{% endfor %}"),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(_templates)
def test_any_template_is_text_or_an_error(source: str) -> None:
    begin = time.monotonic()
    try:
        text: Any = ChatTemplate("{% set ns = namespace(a=1) %}" + source).render(USER)
        assert isinstance(text, str) and len(text) < 1 << 25
    except TemplateError as error:
        assert error.message
    assert time.monotonic() - begin < 30
