"""/completion, /props and /slots, for clients that were written for llama.cpp's server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from satchel.llm.generation import Generation
from satchel.llm.prompt_logprobs import LogProb
from satchel.serve import completions
from satchel.serve.answer import probabilities, timings
from satchel.serve.fields import Fields
from satchel.serve.http import OWN_END
from satchel.serve.jobs import Job
from satchel.serve.models import ServedModel
from satchel.serve.settings import Settings
from satchel.serve.wanted import Wanted

FRAMING = OWN_END
_SAME = (
    "model", "stream", "stop", "temperature", "top_k", "top_p", "min_p", "frequency_penalty",
    "presence_penalty", "ignore_eos", "grammar", "json_schema",
)  # fmt: skip
_STOP_TYPES = {"end_token": "eos", "stop_string": "word"}


@dataclass(frozen=True)
class LlamaAsk:
    """A request that can begin."""

    completion: completions.CompletionAsk
    return_tokens: bool
    several: bool  # whether the answer is a list

    @property
    def generations(self) -> list[Generation]:
        return self.completion.generations

    @property
    def wanted(self) -> Wanted:
        return self.completion.wanted


def prepare(model: ServedModel, fields: Fields, settings: Settings) -> LlamaAsk:
    """The same as a completion of OpenAI's, in other words."""
    prompts, several = _prompts(model, fields)
    document: dict[str, Any] = {name: fields.get(name) for name in _SAME}
    document["prompt"] = prompts
    most = fields.integer("n_predict", -1, 1 << 31, -1)
    document["max_tokens"] = fields.integer("max_tokens", -1, 1 << 31) if most == -1 else most
    document["logprobs"] = fields.integer("n_probs", 0, 1 << 20) or None
    document["repetition_penalty"] = fields.get("repeat_penalty")
    seed = fields.integer("seed", -1, (1 << 63) - 1)
    document["seed"] = None if seed == -1 else seed
    document["logit_bias"] = _bias(model, fields)
    ask = completions.prepare(model, Fields(document), settings)
    return LlamaAsk(ask, fields.switch("return_tokens"), several)


def _prompts(model: ServedModel, fields: Fields) -> tuple[list[list[int]], bool]:
    """A text, tokens, both mixed in one list, an object with a text, or a list of all these."""
    given = fields.get("prompt")
    if not isinstance(given, list) or any(map(completions.is_token, given)):
        return [_prompt(model, fields, given)], False
    if not given:
        raise fields.wrong("prompt", "is an empty list")
    return [_prompt(model, fields, each) for each in given], True


def _prompt(model: ServedModel, fields: Fields, given: Any) -> list[int]:
    if isinstance(given, dict):
        given = given.get("prompt_string") if "multimodal_data" not in given else None
    parts = given if isinstance(given, list) else [given]
    tokens: list[int] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            tokens += model.llm.tokenizer.encode(part, add_bos=False if number else None)
        elif completions.is_token(part):
            tokens.append(part)
        else:
            raise fields.wrong("prompt", "must be a text, tokens, or a list of them")
    return tokens


def _bias(model: ServedModel, fields: Fields) -> dict[str, float] | None:
    """OpenAI's form, or a list of pairs; of tokens or of texts, and false rules one out."""
    given = fields.get("logit_bias")
    if given is None:
        return None
    pairs = list(given.items()) if isinstance(given, dict) else given
    found: dict[str, float] = {}
    for pair in pairs if isinstance(pairs, list) else [None]:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise fields.wrong("logit_bias", "must be an object, or a list of pairs")
        what, bias = pair
        bias = -100.0 if bias is False else bias
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise fields.wrong("logit_bias", "must have numbers, or false")
        whole = isinstance(what, int) or str(what).isdigit()
        for token in [what] if whole else model.llm.tokenizer.encode(str(what), add_bos=False):
            found[str(token)] = max(-100.0, min(100.0, bias))
    return found


def _settings(ask: LlamaAsk) -> dict[str, Any]:
    wanted, sampling = ask.wanted, ask.wanted.sampling
    return {
        "n_predict": -1 if wanted.max_new_tokens is None else wanted.max_new_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "seed": -1 if sampling.seed is None else sampling.seed,
        "stop": list(wanted.stop),
        "stream": wanted.stream,
        "n_probs": wanted.logprobs or 0,
        "logit_bias": [{"token": t, "bias": b} for t, b in sampling.logit_bias.items()],
    }


def _probabilities(ask: LlamaAsk, found: list[LogProb]) -> dict[str, Any]:
    if ask.wanted.logprobs is None:
        return {}
    return {"completion_probabilities": probabilities(ask.completion.model.llm.tokenizer, found)}


def _ended(ask: LlamaAsk, index: int) -> dict[str, Any]:
    """What is told at the end of a text."""
    generation, model = ask.generations[index], ask.completion.model
    stats = generation.stats
    return {
        "index": index,
        "id_slot": -1,
        "stop": True,
        "stop_type": _STOP_TYPES.get(generation.stop_reason or "", "limit"),
        "stopping_word": generation.stop_string or "",
        "model": ask.completion.name,
        "prompt": model.llm.tokenizer.decode(generation.prompt, skip_special=False),
        "tokens_predicted": stats.new_tokens,
        "tokens_evaluated": stats.prompt_tokens,
        "tokens_cached": stats.prompt_tokens + stats.new_tokens - 1,
        "truncated": False,
        "has_new_line": "\n" in generation.text,
        "generation_settings": _settings(ask),
        "timings": timings(generation),
    }


async def whole(job: Job, ask: LlamaAsk) -> Any:
    """One object, or a list of them where several prompts were given."""
    async for _ in job:
        pass
    made = [
        {
            "content": generation.text,
            "tokens": generation.tokens if ask.return_tokens else [],
            **_probabilities(ask, generation.logprobs),
            **_ended(ask, index),
        }
        for index, generation in enumerate(ask.generations)
    ]
    return made if ask.several else made[0]


async def stream(job: Job, ask: LlamaAsk) -> AsyncIterator[dict[str, Any]]:
    """Text and tokens as they come."""
    told = [0] * len(ask.generations)
    async for progress in job:
        index, generation = progress.index, ask.generations[progress.index]
        before, told[index] = told[index], told[index] + progress.tokens
        if progress.text or progress.tokens:
            yield {
                "index": index,
                "id_slot": -1,
                "content": progress.text,
                "tokens": generation.tokens[before : told[index]],
                "stop": False,
                "tokens_predicted": told[index],
                "tokens_evaluated": generation.stats.prompt_tokens,
                **_probabilities(ask, list(progress.logprobs)),
            }
        if progress.ended:
            yield {"content": "", "tokens": [], **_ended(ask, index)}


def props(model: ServedModel, settings: Settings) -> dict[str, Any]:
    """What the server is like."""
    llm = model.llm
    return {
        "default_generation_settings": {"n_ctx": model.context},
        "total_slots": settings.max_sequences,
        "model_alias": model.name,
        "model_path": llm.program.path.name,
        "chat_template": llm.tokenizer.spec.chat_template or "",
        "modalities": {"vision": False, "audio": False},
    }


def slots(model: ServedModel, settings: Settings) -> list[dict[str, Any]]:
    """Which of the places for answers are taken; whose answers they are is not told."""
    running = model.engine.running
    return [
        {"id": number, "n_ctx": model.context, "is_processing": number < running}
        for number in range(settings.max_sequences)
    ]
