"""OpenAI's own client gets what it expects, and the answers are those of LLM.generate alone."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from satchel import LLM
from serve.conftest import Running

MESSAGES: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a river."},
]


def alone(program: Path, prompt: Any = MESSAGES, **options: Any) -> Any:
    """The answer of a program that nobody else uses."""
    llm = LLM(program)
    raw = isinstance(prompt, str)
    sampling = llm.sampling if raw else llm.chat_sampling
    return llm.generate(prompt, raw=raw, sampling=sampling, **options).finish()


def test_models_are_listed(server: Running) -> None:
    (model,) = server.client.models.list()
    assert model.id == "tiny" and model.object == "model"
    assert server.client.models.retrieve("tiny").to_dict()["max_model_len"] == 1024
    with pytest.raises(openai.NotFoundError) as error:
        server.client.models.retrieve("gpt-5")
    assert error.value.code == "model_not_found"


def test_a_chat_completion(server: Running, program: Path) -> None:
    wanted = alone(program, max_new_tokens=20)
    made = server.client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=20)
    (choice,) = made.choices
    assert choice.message.content == wanted.text
    assert choice.message.role == "assistant" and choice.finish_reason == "length"
    assert made.usage is not None
    assert made.usage.prompt_tokens == wanted.stats.prompt_tokens
    assert made.usage.completion_tokens == 20
    assert made.usage.total_tokens == made.usage.prompt_tokens + 20
    again = server.client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_completion_tokens=20
    )
    assert again.choices[0].message.content == wanted.text
    assert again.usage and again.usage.prompt_tokens_details
    assert again.usage.prompt_tokens_details.cached_tokens  # the second time from the cache


def test_a_stream_is_the_same_text(server: Running, program: Path) -> None:
    wanted = alone(program, max_new_tokens=20)
    chunks = list(
        server.client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(deltas) == wanted.text and len(deltas) > 5
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 20
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_every_way_to_sample(server: Running, program: Path) -> None:
    for options in (
        {"temperature": 0.9, "seed": 5},
        {"temperature": 1.3, "top_p": 0.7, "seed": 6},
        {"frequency_penalty": 1.5, "presence_penalty": 0.5},
        {"temperature": 0.0, "logit_bias": {"97": 50.0}},
    ):
        given: dict[str, Any] = dict(options)
        wanted = dict(options)
        if "logit_bias" in options:
            wanted["logit_bias"] = {97: 50.0}
        made = server.client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=15, **given
        )
        assert made.choices[0].message.content == alone(program, max_new_tokens=15, **wanted).text
    extra = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2}
    made = server.client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=15, temperature=1, seed=3, extra_body=extra
    )
    wanted_text = alone(program, max_new_tokens=15, temperature=1, seed=3, **extra).text
    assert made.choices[0].message.content == wanted_text


def test_several_answers_and_stops(server: Running, program: Path) -> None:
    made = server.client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=10, n=3, temperature=1.0, seed=11
    )
    texts = [alone(program, max_new_tokens=10, temperature=1.0, seed=11 + i).text for i in range(3)]
    assert [choice.message.content for choice in made.choices] == texts
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    assert made.usage and made.usage.completion_tokens == 30
    text = alone(program, max_new_tokens=40).text
    stop = text[12:14]
    stopped = server.client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=40, stop=[stop, "never there"]
    )
    assert stopped.choices[0].message.content == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"


def test_logprobs(server: Running, program: Path) -> None:
    wanted = alone(program, max_new_tokens=6, logprobs=3)
    made = server.client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=6, logprobs=True, top_logprobs=3
    )
    assert made.choices[0].logprobs and made.choices[0].logprobs.content
    found = made.choices[0].logprobs.content
    assert [entry.logprob for entry in found] == [value for _, value, _ in wanted.logprobs]
    assert all(len(entry.top_logprobs) == 3 for entry in found)
    assert all(math.exp(entry.logprob) <= 1 for entry in found)
    streamed = server.client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=6, logprobs=True, top_logprobs=3, stream=True
    )
    values = [
        entry.logprob
        for chunk in streamed
        for choice in chunk.choices
        if choice.logprobs and choice.logprobs.content
        for entry in choice.logprobs.content
    ]
    assert values == [entry.logprob for entry in found]


def test_completions(server: Running, program: Path) -> None:
    made = server.client.completions.create(
        model="tiny", prompt=["abc", "xyz"], max_tokens=12, logprobs=2
    )
    wanted = [alone(program, p, max_new_tokens=12, logprobs=2) for p in ("abc", "xyz")]
    assert [choice.text for choice in made.choices] == [w.text for w in wanted]
    logprobs = made.choices[0].logprobs
    assert logprobs and logprobs.token_logprobs == [v for _, v, _ in wanted[0].logprobs]
    assert logprobs.text_offset and logprobs.text_offset[0] == 0 and logprobs.top_logprobs
    tokens = LLM(program).tokenizer.encode("abc")
    by_tokens = server.client.completions.create(model="tiny", prompt=tokens, max_tokens=12)
    assert by_tokens.choices[0].text == wanted[0].text
    echoed = server.client.completions.create(model="tiny", prompt="abc", max_tokens=12, echo=True)
    assert echoed.choices[0].text == "abc" + wanted[0].text
    chunks = list(
        server.client.completions.create(model="tiny", prompt="abc", max_tokens=12, stream=True)
    )
    assert "".join(c.choices[0].text for c in chunks) == wanted[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_how_likely_a_prompt_is(server: Running, program: Path) -> None:
    """As lm-eval asks; against the probabilities that the model has without a server."""
    llm = LLM(program)
    texts = ["abcdef", "x" * 200]
    options: Any = {"model": "tiny", "prompt": texts, "max_tokens": 1, "echo": True, "logprobs": 2}
    made = server.client.completions.create(**options)
    for choice, text in zip(made.choices, texts, strict=True):
        told = choice.logprobs
        assert told and told.token_logprobs and told.top_logprobs and told.tokens
        wanted = llm.logprobs(text[0], text[1:])
        assert told.token_logprobs[0] is None and told.top_logprobs[0] is None
        assert told.tokens[:-1] == [text[0], *(token for token, _ in wanted)]
        assert told.token_logprobs[1:-1] == pytest.approx([ln for _, ln in wanted], abs=1e-4)
        judged = zip(told.top_logprobs[1:], told.token_logprobs[1:], strict=True)
        assert all(1 <= len(top) <= 2 and max(top.values()) >= ln for top, ln in judged)
        assert told.token_logprobs[-1] == max(told.top_logprobs[-1].values())  # it is greedy
        assert len(told.tokens) == len(text) + 1 and choice.text.startswith(text)
    streamed = list(server.client.completions.create(**{**options, "prompt": "ab"}, stream=True))
    found = [v for c in streamed if c.choices[0].logprobs for v in c.choices[0].logprobs.tokens]
    assert found[:2] == ["a", "b"] and len(found) == 3


def test_many_clients_get_what_each_would_get_alone(server: Running, program: Path) -> None:
    prompts = [f"{number} " + "word " * (number * 13 % 90) for number in range(16)]

    async def ask(client: AsyncOpenAI, number: int) -> str:
        text = ""
        stream = await client.completions.create(
            model="tiny",
            prompt=prompts[number],
            max_tokens=10 + number,
            temperature=number % 3 * 0.5,
            seed=number,
            stream=True,
        )
        async for chunk in stream:
            text += chunk.choices[0].text
        return text

    async def all_of_them() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-") as client:
            return list(await asyncio.gather(*(ask(client, i) for i in range(16))))

    llm = LLM(program)
    wanted = [
        llm.generate(prompts[i], raw=True, max_new_tokens=10 + i, temperature=i % 3 * 0.5, seed=i)
        .finish()
        .text
        for i in range(16)
    ]
    assert asyncio.run(all_of_them()) == wanted


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content[0].type"),
    ],
)  # fmt: skip
def test_wrong_fields_are_told_by_name(server: Running, changes: Any, param: str) -> None:
    given = {"model": "tiny", "messages": MESSAGES, "max_tokens": 4} | changes
    with pytest.raises(openai.BadRequestError) as error:
        server.client.chat.completions.create(**given)
    assert error.value.param == param
    assert error.value.type == "invalid_request_error"


def test_unknown_fields_are_ignored(server: Running, program: Path) -> None:
    made = server.client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=5,
        user="someone",
        store=False,
        metadata={"a": "b"},
        extra_body={"something": {"new": 1}},
    )
    assert made.choices[0].message.content == alone(program, max_new_tokens=5).text


def test_a_prompt_that_is_too_long(server: Running) -> None:
    for words in (2000, 100_000):
        with pytest.raises(openai.BadRequestError) as error:
            server.client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "word " * words}]
            )
        assert error.value.code == "context_length_exceeded"
