"""/api/…: what clients that were written for Ollama ask, in the words of chat completions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from satchel.llm.generation import Generation
from satchel.serve import chat, completions
from satchel.serve.answer import finish_reason
from satchel.serve.chat_answer import ChatAnswer, PlainContent
from satchel.serve.fields import Fields
from satchel.serve.http import LINES
from satchel.serve.jobs import Job
from satchel.serve.models import Models, ServedModel
from satchel.serve.settings import Settings
from satchel.serve.wanted import Wanted, read_wanted

_OPTIONS = {
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    **{
        name: name
        for name in (
            "temperature", "top_k", "top_p", "min_p", "seed", "stop", "frequency_penalty",
            "presence_penalty",
        )
    },
}  # fmt: skip
_MOST_IMAGES = 64  # of a message
VERSION = "0.6.0"  # of the API


@dataclass(frozen=True)
class OllamaAsk:
    """A request that can begin; ``field`` is where its text goes."""

    name: str
    wanted: Wanted
    generations: list[Generation]
    answer: ChatAnswer
    field: str


def _options(fields: Fields) -> dict[str, Any]:
    """What both endpoints have."""
    document: dict[str, Any] = {"stream": fields.switch("stream", True)}
    if given := fields.part("options"):
        document |= {new: given.get(old) for old, new in _OPTIONS.items()}
        if document.get("max_tokens") == -2:  # Ollama's word for "as long as there is room"
            document["max_tokens"] = None
    form = fields.get("format")
    if form == "json":
        document["response_format"] = {"type": "json_object"}
    elif isinstance(form, dict):
        document["response_format"] = {"type": "json_schema", "json_schema": {"schema": form}}
    elif form:
        raise fields.wrong("format", "must be json or a JSON Schema")
    if fields.get("think") is False:
        document["chat_template_kwargs"] = {"enable_thinking": False}
    return document


class _Chat:
    """/api/chat."""

    FRAMING = LINES

    def prepare(self, model: ServedModel, fields: Fields, settings: Settings) -> OllamaAsk:
        """The same as a chat completion."""
        document = _options(fields)
        if fields.get("messages") in (None, []):
            return _nothing(model, fields, settings, "message")
        document["tools"] = fields.get("tools")
        document["messages"] = [_message(each) for each in fields.parts("messages")]
        ask = chat.prepare(model, Fields(document), settings)
        name = fields.text("model") or model.name
        return OllamaAsk(name, ask.wanted, ask.generations, ask.answers[0], "message")

    async def whole(self, job: Job, ask: OllamaAsk) -> dict[str, Any]:
        return await _whole(job, ask)

    def stream(self, job: Job, ask: OllamaAsk) -> AsyncIterator[dict[str, Any]]:
        return _stream(job, ask)


class _Generate(_Chat):
    """/api/generate: a text through the model's template, unless it is ``raw``."""

    def prepare(self, model: ServedModel, fields: Fields, settings: Settings) -> OllamaAsk:
        document = _options(fields)
        name = fields.text("model") or model.name
        if fields.get("suffix"):
            raise fields.wrong("suffix", "is not supported: the text is continued at its end")
        prompt = fields.text("prompt") or ""
        if not prompt and not fields.get("images"):
            return _nothing(model, fields, settings, "response")
        if fields.switch("raw") and fields.get("images"):
            raise fields.wrong("images", "do not go together with raw")
        if fields.switch("raw") or not model.llm.has_chat_template:
            made = completions.prepare(model, Fields(document | {"prompt": prompt}), settings)
            plain = ChatAnswer(None, PlainContent())
            return OllamaAsk(name, made.wanted, made.generations, plain, "response")
        system = fields.text("system")
        messages = [{"role": "system", "content": system}] if system else []
        content = _content(fields, prompt)
        document["messages"] = [*messages, {"role": "user", "content": content}]
        ask = chat.prepare(model, Fields(document), settings)
        return OllamaAsk(name, ask.wanted, ask.generations, ask.answers[0], "response")


CHAT, GENERATE = _Chat(), _Generate()


def _nothing(model: ServedModel, fields: Fields, settings: Settings, field: str) -> OllamaAsk:
    """Asked without a text, so that the model is loaded, which it is already."""
    wanted = read_wanted(Fields(_options(fields)), model.llm.sampling, settings)
    return OllamaAsk(
        fields.text("model") or model.name, wanted, [], ChatAnswer(None, PlainContent()), field
    )


def _message(fields: Fields) -> dict[str, Any]:
    message = {name: fields.get(name) for name in ("role", "tool_calls")}
    return message | {
        "content": _content(fields, fields.get("content")),
        "name": fields.get("tool_name") or fields.get("name"),
        "reasoning_content": fields.get("thinking"),
    }


def _content(fields: Fields, text: Any) -> Any:
    """A message's text behind its images, which are files in base64."""
    images = fields.texts("images", _MOST_IMAGES)
    if not images:
        return text
    urls = [{"url": f"data:;base64,{image}"} for image in images]
    return [
        *({"type": "image_url", "image_url": url} for url in urls),
        {"type": "text", "text": text or ""},
    ]


def _part(ask: OllamaAsk, content: str, more: dict[str, Any], **told: Any) -> dict[str, Any]:
    head = {"model": ask.name, "created_at": _now()}
    if ask.field == "message":
        return {**head, "message": {"role": "assistant", "content": content, **more}, **told}
    return {**head, "response": content, **more, **told}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def _calls(message: dict[str, Any]) -> dict[str, Any]:
    found = [call["function"] for call in message.get("tool_calls", [])]
    if not found:
        return {}
    return {
        "tool_calls": [
            {"function": {"name": call["name"], "arguments": _arguments(call["arguments"])}}
            for call in found
        ]
    }


def _arguments(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:  # the answer was cut in the middle of a call
        return {}


def _end(ask: OllamaAsk) -> dict[str, Any]:
    """What is told at the end; times are nanoseconds."""
    if not ask.generations:
        return {"done": True, "done_reason": "load"}
    (generation,) = ask.generations
    stats = generation.stats
    return {
        "done": True,
        "done_reason": finish_reason(generation),
        "total_duration": int((stats.ttft_s + stats.decode_s) * 1e9),
        "load_duration": 0,
        "prompt_eval_count": stats.prompt_tokens,
        "prompt_eval_duration": int(stats.prefill_s * 1e9),
        "eval_count": stats.new_tokens,
        "eval_duration": int(stats.decode_s * 1e9),
    }


async def _whole(job: Job, ask: OllamaAsk) -> dict[str, Any]:
    async for progress in job:
        ask.answer.push(progress.text, progress.tokens)
    ask.answer.finish()
    message = ask.answer.message
    thought = message.get("reasoning_content")
    more = ({"thinking": thought} if thought else {}) | _calls(message)
    return _part(ask, message["content"] or "", more, **_end(ask))


async def _stream(job: Job, ask: OllamaAsk) -> AsyncIterator[dict[str, Any]]:
    async for progress in job:
        deltas = ask.answer.push(progress.text, progress.tokens)
        if progress.ended:
            deltas += ask.answer.finish()
        for delta in deltas:
            if thought := delta.get("reasoning_content"):
                yield _part(ask, "", {"thinking": thought}, done=False)
            if content := delta.get("content"):
                yield _part(ask, content, {}, done=False)
    if calls := _calls(ask.answer.message):
        yield _part(ask, "", calls, done=False)
    yield _part(ask, "", {}, **_end(ask))


def tags(models: Models) -> dict[str, Any]:
    """/api/tags and /api/ps: the models that there are."""
    return {"models": [_described(models.find(name), name) for name in models.names]}


def _described(model: ServedModel, name: str) -> dict[str, Any]:
    program = model.llm.program
    return {
        "name": name,
        "model": name,
        "modified_at": _now(),
        "size": program.size,
        "digest": program.checksum,
        "details": _details(model),
    }


def _details(model: ServedModel) -> dict[str, Any]:
    about = model.llm.program.about
    return {
        "parent_model": "",
        "format": "satchel",
        "family": about.architecture,
        "families": [about.architecture],
        "parameter_size": "",
        "quantization_level": about.recipe_description or "",
    }


def show(model: ServedModel) -> dict[str, Any]:
    """/api/show."""
    template = model.llm.tokenizer.spec.chat_template or ""
    return {
        "modelfile": "",
        "parameters": "",
        "template": template,
        "details": _details(model),
        "model_info": {"general.context_length": model.context},
        "capabilities": [
            "completion",
            *(["tools"] if template else []),
            *(["vision"] if model.llm.takes_images else []),
        ],
    }
