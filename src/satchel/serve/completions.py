"""/v1/completions: texts and tokens that are continued as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from satchel.llm.generation import Generation
from satchel.llm.prompt_logprobs import LogProb, prompt_logprobs
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
from satchel.serve.jobs import Job
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
    echo: bool = False


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
    generations, echoes = [], []
    for prompt in read_prompts(model, fields, settings):
        generations += wanted.generations(model, prompt)
        text = model.llm.tokenizer.decode(prompt) if echo else ""
        echoes += [text] * wanted.count
    name = fields.text("model") or model.name
    return CompletionAsk(model, name, wanted, generations, echoes, echo)


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
    """Those of one text; None where they were not asked for. An echo's come first."""

    def __init__(self, ask: CompletionAsk, index: int, echoed: list[LogProb] | None) -> None:
        self._wanted = ask.wanted.logprobs is not None
        self._made = TextLogprobs(ask.model.llm.tokenizer)
        self._before: dict[str, Any] = {}
        if echoed is not None:
            self._before = self._made.take_prompt(ask.generations[index].prompt, echoed)

    def take(self, found: list[LogProb]) -> dict[str, Any] | None:
        if not self._wanted:
            return None
        before, self._before = self._before, {}
        return {name: before.get(name, []) + new for name, new in self._made.take(found).items()}


async def _logprobs(ask: CompletionAsk) -> list[_Logprobs]:
    """One for each text; where prompts are echoed, they are judged first."""
    top, count = ask.wanted.logprobs, ask.wanted.count
    echoed: list[list[LogProb] | None] = [None] * len(ask.generations)
    if ask.echo and top is not None:
        sessions, adapter = ask.model.llm.sessions, ask.model.adapter
        for index in range(0, len(ask.generations), count):
            work = prompt_logprobs(sessions, ask.generations[index].prompt, top, adapter)
            echoed[index : index + count] = [await ask.model.engine.run(work)] * count
    return [_Logprobs(ask, index, found) for index, found in enumerate(echoed)]


async def whole(job: Job, ask: CompletionAsk) -> dict[str, Any]:
    """The response when all texts have ended."""
    logprobs = await _logprobs(ask)
    async for _ in job:
        pass
    choices = [
        {
            "index": index,
            "text": ask.echoes[index] + generation.text,
            "logprobs": logprobs[index].take(generation.logprobs),
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
    logprobs = await _logprobs(ask)
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


def tokenizer_info(model: ServedModel, _settings: Settings) -> dict[str, Any]:
    """/tokenizer_info, as vLLM tells it."""
    spec = model.llm.tokenizer.spec
    names = [model.llm.tokenizer.decode([each], skip_special=False) for each in spec.eos_ids]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": spec.special_tokens.get("bos_token"),
        "eos_token": spec.special_tokens.get("eos_token") or (names[0] if names else None),
        "pad_token": spec.special_tokens.get("pad_token"),
        "chat_template": spec.chat_template,
        "model_max_length": model.context,
    }


def _piece(tokenizer: Tokenizer, token: int) -> str | list[int]:
    """A token's text; its bytes, if they are none by themselves (as llama.cpp tells them)."""
    data = tokenizer.token_bytes(token)
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
