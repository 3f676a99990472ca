"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``: OpenAI's API of speech to text."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from satchel.serve.errors import ApiError, busy
from satchel.serve.hearing import Hearing
from satchel.serve.http import EVENTS, EventStream, Json, read_bytes, unless_gone
from satchel.serve.listing import listed
from satchel.serve.settings import Settings
from satchel.speech.formats import written
from satchel.speech.result import Segment, Transcription
from satchel.speech.tokens import LANGUAGES
from satchel.speech.transcriber import SpeechOptions, Transcriber

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
BODY_TIMES = 4  # a recording may be so much larger than other requests
GRANULARITIES = ("segment", "word")
_NAME = re.compile(rb'\bname=(?:"([^"]*)"|([^\s;"]+))')  # .NET writes no quotation marks


@dataclass(frozen=True)
class Form:
    """What a client sent: its fields, and the recording."""

    fields: Mapping[str, list[str]]
    file: bytes

    def one(self, name: str, default: str = "") -> str:
        return self.fields.get(name, [default])[0]


class AudioEndpoints:
    """The models of a server that hear, each with one recording at a time."""

    def __init__(self, models: Mapping[str, Transcriber], settings: Settings) -> None:
        self.models, self.settings = dict(models), settings
        self.created = int(time.time())
        self._waiting = 0
        self._turns = {name: asyncio.Lock() for name in self.models}

    def describe(self) -> list[dict[str, Any]]:
        return [
            listed(
                name,
                self.created,
                one.model.about,
                one.model.program.size,
                max_model_len=None,
                chat=False,
                speech=True,
                languages=one.model.vocabulary.special.multilingual,
            )
            for name, one in self.models.items()
        ]

    async def transcribe(self, request: Request) -> Response:
        return await self._answer(request, "transcribe")

    async def translate(self, request: Request) -> Response:
        return await self._answer(request, "translate")

    async def _answer(self, request: Request, task: str) -> Response:
        limits = replace(self.settings, max_body=BODY_TIMES * self.settings.max_body)
        form = read_form(await read_bytes(request, limits), request.headers.get("content-type", ""))
        name = self._find(form.one("model"))
        format = form.one("response_format", "json")
        if format not in FORMATS:
            raise ApiError(
                400, f"response_format is one of {', '.join(FORMATS)}", param="response_format"
            )
        options = read_options(form, task)
        if options.words and format != "verbose_json":
            raise ApiError(
                400, "times of words are in verbose_json alone", param="timestamp_granularities"
            )
        streamed = form.one("stream").lower() in ("true", "1")
        if streamed and format not in ("json", "text"):
            raise ApiError(400, "a stream has no response_format but json", param="stream")
        if self._waiting > self.settings.queue:
            raise busy("too many recordings wait; try again later", 10)
        hearing = self._begin(name, form, options)
        if streamed:
            return await _stream(request, hearing, self.settings)
        whole = asyncio.ensure_future(_whole(hearing))
        said = await unless_gone(request.receive, whole, hearing.cancel)
        if format in ("text", "srt", "vtt"):
            return PlainTextResponse(written(said, "txt" if format == "text" else format))
        remarks = {"remarks": hearing.remarks} if hearing.remarks else {}
        if format == "json":
            return Json({"text": said.text.strip(), **remarks})
        return Json({**verbose(said, task, options.words), **remarks})

    def _begin(self, name: str, form: Form, options: SpeechOptions) -> Hearing:
        turn, limit = self._turns[name], self.settings.time_limit
        hearing = Hearing(self.models[name], form.file, options, turn, limit)
        self._waiting += 1
        hearing.task.add_done_callback(self._done)
        return hearing

    def _done(self, _: object) -> None:
        self._waiting -= 1

    def _find(self, name: str) -> str:
        if not self.models:
            raise ApiError(404, "this server has no model that hears", code="model_not_found")
        if name in self.models:
            return name
        if name in ("", "whisper-1"):  # as clients of OpenAI's call it
            return next(iter(self.models))
        known = ", ".join(self.models)
        raise ApiError(
            404,
            f"there is no model {name!r} that hears; this server has {known}",
            param="model",
            code="model_not_found",
        )


async def _whole(hearing: Hearing) -> Transcription:
    return hearing.transcription([segment async for segment in hearing.segments()])


async def _stream(request: Request, hearing: Hearing, settings: Settings) -> Response:
    """OpenAI's events. What is wrong with a recording is known before the first of them."""
    segments = hearing.segments()
    beginning = asyncio.ensure_future(_first(segments))
    first = await unless_gone(request.receive, beginning, lambda: _unless(beginning, hearing))

    async def events() -> AsyncIterator[dict[str, Any]]:
        text = ""
        for segment in first:
            text += segment.text
            yield {"type": "transcript.text.delta", "delta": segment.text}
        async for segment in segments:
            text += segment.text
            yield {"type": "transcript.text.delta", "delta": segment.text}
        remarks = {"remarks": hearing.remarks} if hearing.remarks else {}
        yield {"type": "transcript.text.done", "text": text.strip(), **remarks}

    return EventStream(hearing, events, settings, EVENTS)


async def _first(segments: AsyncIterator[Segment]) -> list[Segment]:
    """The first one, if there is one."""
    async for segment in segments:
        return [segment]
    return []


def _unless(beginning: asyncio.Future[Any], hearing: Hearing) -> None:
    if not beginning.done():
        hearing.cancel()


def read_form(body: bytes, content_type: str) -> Form:
    """The parts of a multipart/form-data body."""
    found = re.search(r'multipart/form-data.*\bboundary="?([^";,]{1,100})"?', content_type)
    if found is None:
        raise ApiError(400, "send the recording as multipart/form-data, in the field file")
    fields: dict[str, list[str]] = {}
    file: bytes | None = None
    for part in (b"\r\n" + body).split(b"\r\n--" + found[1].encode())[1:]:
        head, separator, content = part.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if not separator or name is None:
            continue
        field = name[1] if name[1] is not None else name[2]
        if field == b"file":
            file = content
        else:
            key = field.decode("utf-8", "replace").removesuffix("[]")
            fields.setdefault(key, []).append(content.decode("utf-8", "replace"))
    if file is None:
        raise ApiError(400, "file is missing", param="file")
    return Form(fields, file)


def read_options(form: Form, task: str) -> SpeechOptions:
    """How the recording is to be heard; temperature 0 tries higher ones where need be."""
    chosen: dict[str, Any] = {"task": task, "prompt": form.one("prompt")}
    wanted = form.fields.get("timestamp_granularities", [])
    if not set(wanted) <= set(GRANULARITIES):
        raise ApiError(
            400,
            f"timestamp_granularities are of {', '.join(GRANULARITIES)}",
            param="timestamp_granularities",
        )
    chosen["words"] = "word" in wanted
    if form.one("language"):
        chosen["language"] = form.one("language")
    try:
        temperature = float(form.one("temperature", "0") or "0")
    except ValueError:
        raise ApiError(400, "temperature must be a number", param="temperature") from None
    if temperature:
        chosen["temperatures"] = (temperature,)
    return SpeechOptions(**chosen)


def verbose(said: Transcription, task: str, words: bool) -> dict[str, Any]:
    """OpenAI's verbose_json."""
    document: dict[str, Any] = {
        "task": task,
        "language": "english" if task == "translate" else LANGUAGES[said.language],
        "duration": said.seconds,
        "text": said.text.strip(),
        "segments": [_segment(number, each) for number, each in enumerate(said.segments)],
    }
    if words:
        document["words"] = [
            {"word": word.text.strip(), "start": word.start, "end": word.end}
            for segment in said.segments
            for word in segment.words
        ]
    return document


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.mean_log_probability,
        "compression_ratio": segment.compression,
        "no_speech_prob": segment.no_speech,
    }
