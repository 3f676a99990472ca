"""The native template engine against jinja2, with the templates of real models and our own."""

# ruff: noqa: E501 - a template is easier to read on a line

from __future__ import annotations

import json
import math
import random
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from test_chat_template import OWN_TEMPLATES, SPECIAL, TALK, WEATHER
from tokenizer_data import shared_tokenizers

from satchel import _native
from satchel.errors import TemplateError
from satchel.llm.chat_template import ChatTemplate

FEATURES = {
    "slices": "{{ 'héllo wörld'[1:-2] }}{{ [1,2,3,4][::-1] }}{{ 'abc'[::2] }}{{ messages[-1].role }}",
    "texts": "{{ ' a b '.strip() }}|{{ 'a,b,,c'.split(',') }}|{{ 'a b  c'.split() }}"
    "|{{ 'xAbC'.upper() ~ 'Q'.lower() }}|{{ 'abcabc'.replace('b', 'XX') }}|{{ 'a-b-c'.rsplit('-', 1) }}"
    "|{{ 'title case'.title() }}|{{ 'x'.join(['1','2']) }}|{{ 'abc'.find('c') }}",
    "numbers": "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 5 }} {{ 1e3 }} {{ 0.1 + 0.2 }}"
    " {{ 10 | float }} {{ '12' | int + 1 }} {{ 3.7 | round }} {{ -3 | abs }}",
    "great steps": "{{ range(0, 9223372036854775807, 4611686018427387904) | list }}"
    "{{ [1,2,3][::9223372036854775807] }}{{ 'abc'[::-9223372036854775807] }}",
    "lists": "{{ [3,1,2] | sort }}{{ [1,2,3] | sum }}{{ ['b','A'] | sort | join('/') }}"
    "{{ [1,[2,{'a': none}], true, 'it\\'s'] }}{{ (1,) }}{{ [1,2] + [3] }}{{ [1,1,2] | unique | list }}"
    "{{ range(5) | list }}{{ range(2, 9, 3) | list }}{{ [[1,2],[3,4]] | map('first') | list }}",
    "dicts": "{% set d = {'b': 1, 'a': 2} %}{{ d | dictsort }}{{ d.items() | list }}{{ d.get('c', 5) }}"
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ 'a' in d }}{{ d['b'] }}{{ d.b }}",
    "tests": "{{ x is defined }}{{ none is none }}{{ 'a' is string }}{{ {} is mapping }}{{ 4 is even }}"
    "{{ 9 is divisibleby 3 }}{{ 1 is not odd }}{{ true is true }}{{ 1 in [1] }}{{ 'b' not in 'abc' }}",
    "loops": "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}"
    "{{ loop.previtem.role if loop.previtem is defined }}{{ ',' if not loop.last }}"
    "{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}",
    "scopes": "{% set a = 1 %}{% for x in [1,2] %}{% set a = x %}{% endfor %}{{ a }}"
    "{% set ns = namespace(n=0) %}{% for x in [1,2] %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}"
    "{% set b %}block {{ a }}{% endset %}{{ b }}",
    "macros": "{% macro f(a, b='x') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(2, b=3) }}"
    "{% macro g(n) %}{{ n }}{% if n > 0 %}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(3) }}",
    "json": "{{ tools | tojson }}{{ tools | tojson(indent=2) }}{{ {'é': '\\n\"'} | tojson }}",
    "undefined": "{{ nothing }}|{{ nothing or 'x' }}|{{ messages[0].nothing }}|{{ nothing | default('d') }}"
    "|{% if nothing %}a{% else %}b{% endif %}|{{ '' | default('e', true) }}|{{ nothing is defined }}",
    "choices": "{{ 'a' if false else 'b' }}{{ 'a' if false }}{{ 1 if 0 else 2 if 0 else 3 }}"
    "{{ (1 == 1.0) and not (2 < 1) or 3 }}{{ 1 < 2 < 3 }}{{ none == false }}",
    "selecting": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}"
    "{{ messages | rejectattr('role', 'in', ['user', 'system']) | list | length }}"
    "{{ [1, 0, 2] | select | list }}{{ messages | map(attribute='role') | list }}",
    "spaces": "a  {%- if true -%}  b  {%- endif %}\n  {# c #}\n\t{% if true %}\n x\n  {% endif +%}\n{{ 1 }}\n\n",
    "indent": "{{ 'a\\nb\\n\\nc' | indent(2) }}{{ 'a\\nb' | indent(2, true) }}",
}


def values_of(messages: list[dict[str, Any]], **variables: Any) -> str:
    values = {**SPECIAL, "documents": None, "tools": None, **variables, "messages": messages}
    return json.dumps(values)


def assert_same(source: str, messages: list[dict[str, Any]], **variables: Any) -> None:
    """The same text, or both refuse."""
    try:
        template = ChatTemplate(source, SPECIAL)
        variables = template.with_thinking(variables)
        wanted = template.render(messages, **variables)
    except TemplateError:
        with pytest.raises(TemplateError):
            _native.Template(source).render(values_of(messages, **variables))
        return
    assert _native.Template(source).render(values_of(messages, **variables)) == wanted


@pytest.mark.parametrize("source", FEATURES.values(), ids=FEATURES.keys())
def test_features(source: str) -> None:
    assert_same(source, TALK, tools=[WEATHER], add_generation_prompt=True)


@pytest.mark.parametrize("name", OWN_TEMPLATES)
def test_our_templates(name: str) -> None:
    source = OWN_TEMPLATES[name]
    variables = {"tools": [WEATHER], "enable_thinking": False, "extra": "é"}
    try:
        template = _native.Template(source)
    except TemplateError as error:
        assert "not done by the native template engine" in str(error)
        return
    wanted = ChatTemplate(source, SPECIAL).render(TALK, add_generation_prompt=True, **variables)
    values = values_of(TALK, add_generation_prompt=True, **variables)
    assert template.render(values) == wanted


def test_numbers_are_written_as_python_writes_them() -> None:
    chance = random.Random(7)
    numbers = [float(sign * 2.0**power) for power in range(-1074, 1024) for sign in (1, -1)]
    for _ in range(20000):
        bits = struct.unpack("<d", struct.pack("<Q", chance.getrandbits(64)))[0]
        numbers += [bits] if math.isfinite(bits) else []
        numbers.append(round(chance.uniform(-1e6, 1e6), chance.randrange(9)))
    numbers += [0.0, -0.0, 1e15, 1e16, 9999999999999998.0, 1e22, 1e-4, 9.5e-5, 5e-324, 0.1, 123.0]
    template = _native.Template("{% for x in numbers %}{{ x }} {% endfor %}")
    for some in (numbers[i : i + 1000] for i in range(0, len(numbers), 1000)):
        written = template.render(values_of(TALK, numbers=some)).split()
        assert written == [repr(x) for x in some]


def real_templates() -> dict[str, str]:
    folder = shared_tokenizers()
    found = {p.name: p.read_text("utf-8") for p in folder.rglob("*.jinja")}
    for config in folder.glob("*/tokenizer_config.json"):
        source = json.loads(config.read_text("utf-8")).get("chat_template")
        if isinstance(source, str):
            found[config.parent.name] = source
    return found


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Oslo"}}}
PARTS = [
    {"role": "system", "content": " Be brief.\n"},
    {"role": "user", "content": "What is it?  "},
    {"role": "user", "content": "日本 <b>&amp; 'x' \"y\" {{ z }}"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nAn answer."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"rain": true}'},
]


def test_real_templates_in_many_conversations() -> None:
    chance = random.Random(3)
    templates = real_templates()
    assert len(templates) >= 10
    for source in templates.values():
        for number in range(40):
            first = [PARTS[0]] if number % 2 else []
            talk = [*first, PARTS[1], *chance.choices(PARTS[1:], k=number % 5)]
            variables: dict[str, Any] = {"add_generation_prompt": number % 3 != 0}
            if number % 4 == 1:
                variables["tools"] = [WEATHER]
            if number % 5 == 2:
                variables["enable_thinking"] = number % 2 == 0
            variables["date_string"] = "1 May 2025"
            assert_same(source, talk, **variables)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("a\nb\n{% if %}", "cannot be parsed at line 3"),
        (
            "\n{{ raise_exception('roles must alternate') }}",
            "failed at line 2: roles must alternate",
        ),
        ("{% include 'x' %}", "the tag 'include' is not done"),
        ("{{ 1 | xmlattr }}", "the filter 'xmlattr' is not done"),
        ("{{ nothing.at.all }}", "undefined"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ ''.__class__.__mro__ }}", "undefined"),
        (
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            "too",
        ),
        (
            "{% set ns = namespace(t='x') %}{% for a in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
            "too",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"),
        ("{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "too deep"),
        ("{{ 'a' * 1000000000 }}", "too"),
        ("{{ range(10000000) }}", "too long"),
        ("{{ -(-9223372036854775807 - 1) }}", "too large"),
        ("{{ (-9223372036854775807 - 1) // -1 }}", "too large"),
    ],
)
def test_what_fails_says_why(source: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why):
        _native.Template(source).render(values_of(TALK))


def test_damaged_templates() -> None:
    """Text or a TemplateError, never a crash."""
    chance = random.Random(5)
    sources = [*FEATURES.values(), *OWN_TEMPLATES.values()]
    pieces = [
        "{%",
        "%}",
        "{{",
        "}}",
        "{#",
        "'",
        "(",
        ")",
        "[",
        "|",
        ".",
        " if ",
        " for ",
        "endfor",
        "\\",
    ]
    for _ in range(2000):
        source = chance.choice(sources)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(source) + 1)
            cut = chance.randrange(4)
            source = source[:at] + chance.choice(["", *pieces]) + source[at + cut :]
        try:
            _native.Template(source).render(values_of(TALK, tools=[WEATHER]))
        except TemplateError as error:
            assert str(error)
