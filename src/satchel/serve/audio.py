"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``: OpenAI's API of speech to text."""

from __future__ import annotations

import asyncio
import io
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from satchel.serve.errors import ApiError, busy
from satchel.serve.http import Json, read_bytes, until_gone
from satchel.serve.listing import listed
from satchel.serve.settings import Settings
from satchel.speech.formats import written
from satchel.speech.result import Segment, Transcription
from satchel.speech.transcriber import SpeechOptions, Transcriber

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
BODY_TIMES = 4  # a recording may be so much larger than other requests
_NAME = re.compile(rb'\bname="([^"]*)"')


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
        if self._waiting > self.settings.queue:
            raise busy("too many recordings wait; try again later", 10)
        self._waiting += 1
        try:
            said = await self._while_there(request, name, form, options)
        finally:
            self._waiting -= 1
        if format in ("text", "srt", "vtt"):
            return PlainTextResponse(written(said, "txt" if format == "text" else format))
        if format == "json":
            return Json({"text": said.text.strip()})
        return Json(verbose(said, task, options.words))

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

    async def _while_there(
        self, request: Request, name: str, form: Form, options: SpeechOptions
    ) -> Transcription:
        """Work for a client that waits; a window after it has gone, the work ends."""
        ended = threading.Event()
        latest = time.monotonic() + self.settings.time_limit

        def watch(_done: float, _all: float) -> None:
            if ended.is_set():
                raise ClientDisconnect
            if time.monotonic() > latest:
                raise ApiError(408, "the recording takes too long", code="timeout")

        def work() -> Transcription:
            recording = io.BytesIO(form.file)
            return self.models[name].transcribe(recording, progress=watch, options=options)

        async def in_turn() -> Transcription:
            async with self._turns[name]:  # memory is that of one recording
                watch(0, 0)
                return await run_in_threadpool(work)

        working = asyncio.ensure_future(in_turn())
        gone = asyncio.ensure_future(until_gone(request.receive))
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                ended.set()
                raise ClientDisconnect
            return working.result()
        finally:
            gone.cancel()
            if not working.done():
                working.add_done_callback(lambda done: done.exception())


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
        if name[1] == b"file":
            file = content
        else:
            key = name[1].decode("utf-8", "replace").removesuffix("[]")
            fields.setdefault(key, []).append(content.decode("utf-8", "replace"))
    if file is None:
        raise ApiError(400, "file is missing", param="file")
    return Form(fields, file)


def read_options(form: Form, task: str) -> SpeechOptions:
    """How the recording is to be heard; temperature 0 tries higher ones where need be."""
    chosen: dict[str, Any] = {"task": task, "prompt": form.one("prompt")}
    chosen["words"] = "word" in form.fields.get("timestamp_granularities", [])
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
        "language": said.language,
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
        "seek": 0,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.mean_log_probability,
        "compression_ratio": segment.compression,
        "no_speech_prob": segment.no_speech,
    }
