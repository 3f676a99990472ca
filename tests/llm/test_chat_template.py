"""Chat templates against transformers' rendering of the same templates."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizer_data import shared_tokenizers
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from satchel.errors import TemplateError
from satchel.llm.chat_template import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
USER = {"role": "user", "content": 'What is <b>this</b> & "that"? 日本 😀'}
TALK = [
    {"role": "system", "content": "  Be brief.  "},
    USER,
    {"role": "assistant", "content": "A test."},
    {"role": "user", "content": "Of what?"},
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Get the weather <now> & 'here'",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "où"}},
            "required": ["place"],
        },
    },
}


def theirs(source: str, messages: list[dict[str, Any]], **variables: Any) -> str:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])), chat_template=source, **SPECIAL
    )
    text = tokenizer.apply_chat_template(messages, tokenize=False, **variables)
    assert isinstance(text, str)
    return text


OWN_TEMPLATES = {
    "trims blocks": """
        {%- for message in messages %}
            {% if message.role == 'user' %}
        U: {{ message.content }}
            {% else %}
        A: {{ message['content'] | trim }}
            {% endif %}
        {% endfor %}
        end
        """,
    "loop controls": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{{ m.content }}|{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}"
    ),
    "tojson": (
        "{{ messages | tojson }}{{ tools | tojson(indent=2) }}"
        "{{ tools | tojson(separators=(',', ':'), sort_keys=true) }}"
        "{{ messages | tojson(ensure_ascii=true) }}"
    ),
    "generation": (
        "{% for m in messages %}{% generation %}{{ m.content }}{{ eos_token }}"
        "{% endgeneration %}\n{% endfor %}"
    ),
    "namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% endfor %}{{ ns.n }}{{ bos_token }}{{ pad_token }}{{ unk_token }}"
    ),
    "macro": (
        "{% macro show(m) %}<{{ m.role | upper }}>{{ m.content }}{% endmacro %}"
        "{% for m in messages %}{{ show(m) }}{% endfor %}"
        "{% if add_generation_prompt %}<GO>{% endif %}"
    ),
    "variables": (
        "{% if enable_thinking is defined and enable_thinking is false %}no thinking{% else %}"
        "<think>{% endif %}{{ documents is none }}{{ '%s!' | format(extra) }}"
    ),
    "strings": (
        "{{ messages[-1].content.split(' ')[0] }}{{ 'a-b'.replace('-', '+') }}"
        "{{ messages[1:] | length }}{{ messages | map(attribute='role') | join(',') }}"
        "{{ '-' * 10 }}{{ 2 ** 10 }}{{ dict(a=1) | items | list }}"
    ),
    "date": "{{ strftime_now('%Y %B') }}",
}


@pytest.mark.parametrize("source", OWN_TEMPLATES.values(), ids=OWN_TEMPLATES.keys())
@pytest.mark.parametrize("prompt", [True, False])
def test_renders_as_transformers_does(source: str, prompt: bool) -> None:
    variables = {"tools": [WEATHER], "enable_thinking": False, "extra": "é"}
    ours = ChatTemplate(source, SPECIAL).render(TALK, add_generation_prompt=prompt, **variables)
    assert ours == theirs(source, TALK, add_generation_prompt=prompt, **variables)


@pytest.mark.parametrize(
    "name",
    [
        "google-gemma-2-2b-it",
        "ibm-granite-granite-3.3-2B-Instruct",
        "HuggingFaceTB-SmolLM3-3B",
        "meta-llama-Llama-3.2-3B-Instruct",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "microsoft-Phi-3.5-mini-instruct",
    ],
)
def test_real_templates_render_as_transformers_does(name: str) -> None:
    source = (shared_tokenizers() / "chat_templates" / f"{name}.jinja").read_text("utf-8")
    template = ChatTemplate(source, SPECIAL)
    talk = TALK if "gemma" not in name else TALK[1:]  # Gemma 2 has no system role
    for variables in (
        {},
        {"enable_thinking": False},
        {"tools": [WEATHER]},
        {"date_string": "1 May 2025"},
    ):
        for prompt in (True, False):
            ours = template.render(talk, add_generation_prompt=prompt, **variables)
            assert ours == theirs(source, talk, add_generation_prompt=prompt, **variables)
    assert talk[-1]["content"] in ours


def test_thinking_can_be_switched_off() -> None:
    source = (shared_tokenizers() / "chat_templates" / "Qwen-Qwen3-0.6B.jinja").read_text("utf-8")
    template = ChatTemplate(source, SPECIAL)
    assert template.render([USER], enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert template.render([USER]).endswith("assistant\n")


def test_granite_calls_it_thinking() -> None:
    name = "ibm-granite-granite-3.3-2B-Instruct.jinja"
    source = (shared_tokenizers() / "chat_templates" / name).read_text("utf-8")
    ours = ChatTemplate(source, SPECIAL).render([USER], enable_thinking=True)
    wanted = theirs(source, [USER], thinking=True, add_generation_prompt=True)
    assert ours == wanted != theirs(source, [USER], add_generation_prompt=True)


def test_seed_has_a_budget_for_thinking() -> None:
    source = (
        "{% if thinking_budget is not defined %}{% set thinking_budget = -1 %}{% endif %}"
        "{{ messages[0].content }}{% if thinking_budget == 0 %}<seed:think></seed:think>{% endif %}"
    )
    template = ChatTemplate(source)
    for how in ({}, {"enable_thinking": True}, {"enable_thinking": False, "thinking_budget": 9}):
        assert template.render([USER], **how) == USER["content"]
    assert template.render([USER], enable_thinking=False).endswith("<seed:think></seed:think>")


def test_a_model_without_template_is_told_to_use_raw() -> None:
    with pytest.raises(TemplateError, match="no chat template") as caught:
        ChatTemplate(None)
    assert "satchel run --raw" in caught.value.advice


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(TemplateError, match="cannot be parsed at line 3"):
        ChatTemplate("a\nb\n{% if %}")


def test_an_error_of_the_template_itself_is_passed_on() -> None:
    template = ChatTemplate("\n{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateError, match="failed at line 2: roles must alternate"):
        template.render([USER])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("\n\n{{ messages[0].content + 1 }}", "line 3"),
        ("{{ nothing.at.all }}", "undefined"),
        ("{{ messages[7].role }}", "no element 7"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "not safe|unsafe"),
        ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "__class__"),
        ("{{ namespace(__init__=1) }}", "__init__"),
        ("{% for i in range(10000000) %}x{% endfor %}", "[Rr]ange"),
        ("{{ 'x' * 999999999 }}", "too large"),
        ("{{ [1] * 999999999 }}", "too large"),
        ("{{ 9 ** 99999999 }}", "too large"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recursion"),
    ],
)
def test_failures_while_rendering_are_errors(source: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why):
        ChatTemplate(source).render([USER])


def test_objects_do_not_reach_a_template() -> None:
    with pytest.raises(TemplateError, match="holds a object"):
        ChatTemplate("{{ messages }}").render([{"role": "user", "content": object()}])


@pytest.mark.parametrize("inner", ["part['text']", "part.text"])
def test_texts_become_parts_where_a_template_goes_over_them(inner: str) -> None:
    """As SmolVLM's and LLaVA's do, which would drop a plain text without a word."""
    loop = "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ " + inner + " }}"
    source = "{% for m in messages %}" + loop + "{% endif %}{% endfor %}|{% endfor %}"
    parts = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in TALK]
    template = ChatTemplate(source, SPECIAL)
    assert template.takes_parts
    assert (
        template.render(TALK)
        == theirs(source, parts)
        == "  Be brief.  |" + "|".join([*(str(m["content"]) for m in TALK[1:]), ""])
    )
    assert not ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}").takes_parts
