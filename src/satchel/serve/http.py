"""Bodies in, JSON and events out, and what happens when the client goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from satchel.serve.errors import ApiError, api_error
from satchel.serve.fields import parse_json
from satchel.serve.settings import Settings

T = TypeVar("T")
_SILENCE_S = 15.0  # after so long a comment is sent, that proxies do not close the connection


async def read_body(request: Request, settings: Settings) -> dict[str, Any]:
    """The body's JSON object, if it is not too large and comes in time."""
    return parse_json(await read_bytes(request, settings))


async def read_bytes(request: Request, settings: Settings) -> bytes:
    """The whole body, within the same limits."""
    try:
        return await asyncio.wait_for(_read(request, settings), settings.body_time_limit)
    except asyncio.TimeoutError:
        raise ApiError(408, "the request did not come in whole", code="timeout") from None


async def _read(request: Request, settings: Settings) -> bytes:
    body = bytearray()
    too_large = ApiError(
        413, f"the body is larger than {settings.max_body} bytes", code="request_too_large"
    )
    packed = request.headers.get("content-encoding", "identity")
    if packed != "identity":  # unpacked it could be of any size
        raise ApiError(415, f"the body is packed ({packed}); send it as it is")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > settings.max_body:
        raise too_large
    async for piece in request.stream():
        body += piece
        if len(body) > settings.max_body:
            raise too_large
    return bytes(body)


class Json(Response):
    """A JSON document; halves of characters, which UTF-8 does not have, become question marks."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return as_json(content)


def as_json(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def failed(error: Exception, plain: bool = False) -> Json:
    """An error as OpenAI tells it; ``plain``: as Ollama does."""
    told = api_error(error)
    document = {"error": told.message} if plain else told.to_dict()
    return Json(document, told.status, headers=told.headers)


async def until_gone(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Work(Protocol):
    """What a client waits for: a job, or a recording that is heard."""

    def cancel(self) -> None: ...


async def while_there(receive: Receive, job: Work, work: Awaitable[T]) -> T:
    """Work for a client that waits; ends, with all of the job, when it goes away."""
    return await unless_gone(receive, asyncio.ensure_future(work), job.cancel)


async def unless_gone(
    receive: Receive, working: asyncio.Future[T], at_end: Callable[[], None] = lambda: None
) -> T:
    """What the work gives; it is cancelled when the client goes away. ``at_end`` comes first."""
    gone = asyncio.ensure_future(until_gone(receive))
    both: set[asyncio.Future[Any]] = {working, gone}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        at_end()
        await _end(both)


async def _end(tasks: set[asyncio.Future[Any]]) -> None:
    """Cancel them until they are done: before Python 3.12 ``wait_for`` loses a cancellation that
    comes when it has just been given its result, and who then goes on would wait for ever."""
    while tasks:
        for task in tasks:
            task.cancel()
        done, tasks = await asyncio.wait(tasks, timeout=0.1)
        for task in done:
            if not task.cancelled():
                task.exception()  # or asyncio says that nobody has asked for it


@dataclass(frozen=True)
class Framing:
    """How the parts of a stream are told apart."""

    media_type: str
    part: Callable[[Any], bytes]  # of a document
    error: Callable[[ApiError], bytes]
    comment: bytes | None  # what is sent after a long silence
    end: bytes = b""


class EventStream(Response):
    """An answer as a stream of parts."""

    def __init__(
        self,
        job: Work,
        events: Callable[[], AsyncIterator[Any]],
        settings: Settings,
        framing: Framing,
    ) -> None:
        super().__init__(media_type=framing.media_type, headers={"Cache-Control": "no-cache"})
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._job, self._events, self._settings, self._framing = job, events, settings, framing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect, OSError, asyncio.TimeoutError):
            await while_there(receive, self._job, self._stream(send))

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            async for data in _with_comments(self._events(), self._framing):
                await self._send(send, data)
        except Exception as error:
            await self._send(send, self._framing.error(api_error(error)))
        if self._framing.end:
            await self._send(send, self._framing.end)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        """A client that does not read holds up nobody but itself, and not for ever."""
        body = {"type": "http.response.body", "body": data, "more_body": True}
        await asyncio.wait_for(send(body), self._settings.send_time_limit)


def event(document: Any, name: str | None = None) -> bytes:
    """
    >>> event({"a": 1})
    b'data: {"a":1}\\n\\n'
    """
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + as_json(document) + b"\n\n"


# Server-sent events as OpenAI ends them, those whose last one says that it is the last, and lines.
EVENTS = Framing(
    "text/event-stream",
    event,
    lambda error: event(error.to_dict()),
    b": still working\n\n",
    b"data: [DONE]\n\n",
)
OWN_END = replace(EVENTS, end=b"")
LINES = Framing(
    "application/x-ndjson",
    lambda document: as_json(document) + b"\n",
    lambda error: as_json({"error": error.message}) + b"\n",
    None,
)


async def _with_comments(events: AsyncIterator[Any], framing: Framing) -> AsyncIterator[bytes]:
    """The events, and a comment after a long silence."""
    pending: asyncio.Future[Any] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(events))
            ready, _ = await asyncio.wait({pending}, timeout=_SILENCE_S)
            if not ready:
                if framing.comment:
                    yield framing.comment
                continue
            try:
                given = pending.result()
            except StopAsyncIteration:
                return
            finally:
                pending = None
            yield given if isinstance(given, bytes) else framing.part(given)
    finally:
        if pending is not None:
            pending.cancel()
            with suppress(asyncio.CancelledError, Exception, StopAsyncIteration):
                await pending
