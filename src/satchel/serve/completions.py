"""/v1/completions: texts and tokens that are continued as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from satchel.llm.generation import Generation
from satchel.llm.token_text import token_bytes
from satchel.llm.tokenizer import Tokenizer
from satchel.serve.answer import (
    TextLogprobs,
    fingerprint,
    finish_reason,
    new_id,
    now,
    timings,
    usage,
)
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.form import read_form
from satchel.serve.http import EVENTS
from satchel.serve.jobs import Job, LogProb
from satchel.serve.models import ServedModel
from satchel.serve.settings import Settings
from satchel.serve.wanted import (
    MOST_LOGPROBS,
    Wanted,
    check_bias,
    check_length,
    check_prompt,
    read_wanted,
    without_end,
)

FRAMING = EVENTS
_MOST_PROMPTS = 64


@dataclass(frozen=True)
class CompletionAsk:
    """A request that can begin."""

    model: ServedModel
    name: str
    wanted: Wanted
    generations: list[Generation]
    echoes: list[str]  # what each text begins with


def prepare(model: ServedModel, fields: Fields, settings: Settings) -> CompletionAsk:
    """Check all of a request, and encode its prompts."""
    wanted = read_wanted(fields, model.llm.sampling, settings)
    wanted = replace(wanted, logprobs=fields.integer("logprobs", 0, MOST_LOGPROBS))
    if fields.get("suffix"):
        raise fields.wrong("suffix", "is not supported: the text is continued at its end")
    if (fields.integer("best_of", 1, 1 << 20, 1) or 1) > wanted.count:
        raise fields.wrong("best_of", "may not be above n")
    check_bias(wanted, model)
    wanted = without_end(wanted, model, fields)
    wanted = replace(wanted, grammar=read_form(fields, model))
    echo = fields.switch("echo")
    if echo and wanted.logprobs is not None:
        raise fields.wrong("echo", "goes without logprobs")
    generations, echoes = [], []
    for prompt in read_prompts(model, fields, settings):
        generations += wanted.generations(model, prompt)
        text = model.llm.tokenizer.decode(prompt) if echo else ""
        echoes += [text] * wanted.count
    name = fields.text("model") or model.name
    return CompletionAsk(model, name, wanted, generations, echoes)


def read_prompts(
    model: ServedModel,
    fields: Fields,
    settings: Settings,
    name: str = "prompt",
    most: int = _MOST_PROMPTS,
) -> list[list[int]]:
    """A text, several, the tokens of one, or those of several."""
    given = fields.get(name)
    if isinstance(given, str) or (isinstance(given, list) and given and is_token(given[0])):
        given = [given]
    if not isinstance(given, list) or not given:
        raise fields.wrong(name, "must be a text, a list of texts or of tokens")
    if len(given) > most:
        raise fields.wrong(name, f"may have {most} texts, not {len(given)}")
    found = []
    for each in given:
        if isinstance(each, str):
            check_length(len(each), model, name)
            tokens = model.llm.tokenizer.encode(each)
        elif isinstance(each, list) and all(map(is_token, each)):
            tokens = each
        else:
            raise fields.wrong(name, "must be a text, a list of texts or of tokens")
        check_prompt(tokens, model, settings, name)
        found.append(tokens)
    return found


def is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _head(ask: CompletionAsk) -> dict[str, Any]:
    return {
        "id": new_id("cmpl-"),
        "object": "text_completion",
        "created": now(),
        "model": ask.name,
        "system_fingerprint": fingerprint(ask.model.llm),
    }


class _Logprobs:
    """Those of one text; None where they were not asked for."""

    def __init__(self, ask: CompletionAsk) -> None:
        self._wanted = ask.wanted.logprobs is not None
        self._made = TextLogprobs(ask.model.llm.tokenizer)

    def take(self, found: list[LogProb]) -> dict[str, Any] | None:
        return self._made.take(found) if self._wanted else None


async def whole(job: Job, ask: CompletionAsk) -> dict[str, Any]:
    """The response when all texts have ended."""
    async for _ in job:
        pass
    choices = [
        {
            "index": index,
            "text": ask.echoes[index] + generation.text,
            "logprobs": _Logprobs(ask).take(generation.logprobs),
            "finish_reason": finish_reason(generation),
        }
        for index, generation in enumerate(ask.generations)
    ]
    told = {
        "usage": usage(ask.generations, ask.wanted.count),
        "timings": timings(ask.generations[0]),
    }
    return {**_head(ask), "choices": choices, **told}


async def stream(job: Job, ask: CompletionAsk) -> AsyncIterator[dict[str, Any]]:
    """Chunks as the texts come."""
    head = _head(ask)
    if ask.wanted.include_usage:
        head["usage"] = None
    logprobs = [_Logprobs(ask) for _ in ask.generations]
    held: list[list[LogProb]] = [[] for _ in ask.generations]
    texts = list(ask.echoes)
    async for progress in job:
        index = progress.index
        held[index] += progress.logprobs
        texts[index] += progress.text
        if not texts[index] and not progress.ended:
            continue
        generation = ask.generations[index]
        choice = {
            "index": index,
            "text": texts[index],
            "logprobs": logprobs[index].take(held[index]),
            "finish_reason": finish_reason(generation) if progress.ended else None,
        }
        texts[index], held[index] = "", []
        made = {**head, "choices": [choice]}
        yield made | ({"timings": timings(generation)} if progress.ended else {})
    if ask.wanted.include_usage:
        told = {"usage": usage(ask.generations, ask.wanted.count)}
        yield {**head, "choices": [], **told, "timings": timings(ask.generations[0])}


def tokenize(model: ServedModel, fields: Fields, prompt: list[int] | None) -> dict[str, Any]:
    """/tokenize: llama.cpp's ``content`` and vLLM's ``prompt`` or ``messages``."""
    tokenizer = model.llm.tokenizer
    if prompt is None:
        name = "content" if "content" in fields.document else "prompt"
        text = fields.text(name)
        if text is None:
            raise fields.wrong(name, "is missing")
        check_length(len(text), model, name)
        # llama.cpp adds none of them unless asked to, vLLM does unless asked not to.
        add = fields.switch("add_special") if name == "content" else None
        add = fields.switch("add_special_tokens", True) if add is None else add
        special = fields.switch("parse_special", True)
        prompt = tokenizer.encode(text, add_bos=None if add else False, parse_special=special)
    tokens: list[Any] = prompt
    if fields.switch("with_pieces"):
        tokens = [{"id": token, "piece": _piece(tokenizer, token)} for token in prompt]
    return {"tokens": tokens, "count": len(prompt), "max_model_len": model.context}


def _piece(tokenizer: Tokenizer, token: int) -> str | list[int]:
    """A token's text; its bytes, if they are none by themselves (as llama.cpp tells them)."""
    data = token_bytes(tokenizer, token)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


def detokenize(model: ServedModel, fields: Fields) -> dict[str, Any]:
    """/detokenize, under llama.cpp's name and vLLM's."""
    tokens = fields.get("tokens")
    size = model.llm.tokenizer.vocab_size
    if not isinstance(tokens, list) or not all(map(is_token, tokens)):
        raise fields.wrong("tokens", "must be a list of token ids")
    if any(not 0 <= token < size for token in tokens):
        raise ApiError(400, f"tokens must be from 0 to {size - 1}", param="tokens")
    text = model.llm.tokenizer.decode(tokens, skip_special=False)
    return {"content": text, "prompt": text}
