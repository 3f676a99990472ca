"""/v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from satchel.llm.generation import Generation
from satchel.llm.prompt_logprobs import LogProb
from satchel.serve.answer import (
    chat_logprobs,
    fingerprint,
    finish_reason,
    new_id,
    now,
    timings,
    usage,
)
from satchel.serve.chat_answer import (
    ChatAnswer,
    ContentParser,
    PlainContent,
    reasoning_marks,
    splitter_for,
)
from satchel.serve.chat_prompt import chat_prompt
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.form import make_form, read_form
from satchel.serve.http import EVENTS
from satchel.serve.jobs import Job
from satchel.serve.models import ServedModel
from satchel.serve.settings import Settings
from satchel.serve.tool_calls import CALL_MARKS, ToolCalls
from satchel.serve.tools import Tools, read_tools
from satchel.serve.wanted import (
    MOST_LOGPROBS,
    Wanted,
    check_bias,
    read_wanted,
    without_end,
)

FRAMING = EVENTS


@dataclass(frozen=True)
class ChatAsk:
    """A request that can begin: its generations and how their texts are read."""

    model: ServedModel
    name: str
    wanted: Wanted
    generations: list[Generation]
    answers: list[ChatAnswer]

    def usage(self) -> dict[str, Any]:
        reasoned = sum(answer.reasoning_tokens for answer in self.answers)
        details = {"completion_tokens_details": {"reasoning_tokens": reasoned}}
        return usage(self.generations, self.wanted.count) | details


def prepare(model: ServedModel, fields: Fields, settings: Settings) -> ChatAsk:
    """Check all of a request, and render its prompt; slow for long ones."""
    if not model.llm.has_chat_template:
        raise ApiError(
            400, f"{model.name} is a base model and cannot chat; use /v1/completions", param="model"
        )
    wanted = read_wanted(fields, model.llm.chat_sampling, settings)
    if fields.switch("logprobs"):
        wanted = replace(wanted, logprobs=fields.integer("top_logprobs", 0, MOST_LOGPROBS, 0))
    elif fields.get("top_logprobs"):
        raise fields.wrong("top_logprobs", "needs logprobs to be true")
    check_bias(wanted, model)
    wanted = without_end(wanted, model, fields)
    tools = read_tools(fields)
    form = read_form(fields, model)
    if (called := tools.schema()) is not None:
        if form is not None:
            raise fields.wrong("tool_choice", "does not go together with a form of the answer")
        form = make_form(model, "tools", "json", called)
    marks = (*reasoning_marks(model), *(CALL_MARKS if tools.given else ()))
    wanted = replace(wanted, grammar=form, marks=marks)
    prompt = chat_prompt(model, fields, settings, tools)
    generations = wanted.generations(model, prompt.tokens, prompt.shown)
    read = prompt.visible(model)
    answers = [ChatAnswer(splitter_for(model, read, form), _parser(tools)) for _ in generations]
    return ChatAsk(model, fields.text("model") or model.name, wanted, generations, answers)


def _parser(tools: Tools) -> ContentParser:
    return ToolCalls(tools.names, tools.most) if tools.given else PlainContent()


def _head(ask: ChatAsk, kind: str) -> dict[str, Any]:
    return {
        "id": new_id("chatcmpl-"),
        "object": kind,
        "created": now(),
        "model": ask.name,
        "system_fingerprint": fingerprint(ask.model.llm),
    }


def _reason(ask: ChatAsk, index: int) -> str:
    reason = finish_reason(ask.generations[index])
    return "tool_calls" if reason == "stop" and ask.answers[index].called else reason


async def whole(job: Job, ask: ChatAsk) -> dict[str, Any]:
    """The response when all answers have ended."""
    async for progress in job:
        ask.answers[progress.index].push(progress.text, progress.tokens)
        if progress.ended:
            ask.answers[progress.index].finish()
    choices = [
        {
            "index": index,
            "message": answer.message,
            "logprobs": _logprobs(ask, ask.generations[index].logprobs),
            "finish_reason": _reason(ask, index),
        }
        for index, answer in enumerate(ask.answers)
    ]
    told = {
        "usage": ask.usage(),
        "timings": timings(ask.generations[0]),
    }
    return {**_head(ask, "chat.completion"), "choices": choices, **told}


def _logprobs(ask: ChatAsk, found: list[LogProb]) -> dict[str, Any] | None:
    if ask.wanted.logprobs is None:
        return None
    return chat_logprobs(ask.model.llm.tokenizer, found)


async def stream(job: Job, ask: ChatAsk) -> AsyncIterator[dict[str, Any]]:
    """Chunks as the answers come."""
    head = _head(ask, "chat.completion.chunk")
    if ask.wanted.include_usage:
        head["usage"] = None

    def chunk(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**head, "choices": [choice]}

    held: list[list[LogProb]] = [[] for _ in ask.answers]
    for index in range(len(ask.answers)):
        yield chunk(index, {"role": "assistant", "content": ""})
    async for progress in job:
        index, answer = progress.index, ask.answers[progress.index]
        held[index] += progress.logprobs
        deltas = answer.push(progress.text, progress.tokens)
        if progress.ended:
            deltas += answer.finish()
        for delta in deltas:
            made = chunk(index, delta)
            made["choices"][0]["logprobs"] = _logprobs(ask, held[index])
            held[index] = []
            yield made
        if progress.ended:
            last = chunk(index, {}, _reason(ask, index))
            if held[index]:
                last["choices"][0]["logprobs"] = _logprobs(ask, held[index])
            yield {**last, "timings": timings(ask.generations[index])}
    if ask.wanted.include_usage:
        told = {"usage": ask.usage(), "timings": timings(ask.generations[0])}
        yield {**head, "choices": [], **told}
