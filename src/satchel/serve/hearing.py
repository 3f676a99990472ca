"""One recording that is being heard for a client: its segments, as windows are done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from satchel.serve.errors import ApiError
from satchel.speech.audio import open_sound
from satchel.speech.result import Segment, Transcription
from satchel.speech.transcriber import SegmentStream, SpeechOptions, Transcriber


class Hearing:
    """Work that waits for its turn at a model; a window after it was cancelled, it ends."""

    def __init__(
        self,
        transcriber: Transcriber,
        recording: bytes,
        options: SpeechOptions,
        turn: asyncio.Lock,
        time_limit: float,
    ) -> None:
        self._segments: asyncio.Queue[Segment | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._unwanted = threading.Event()
        self._latest = time.monotonic() + time_limit
        self._stream: SegmentStream | None = None
        self.remarks: list[str] = []  # of damage, as far as it was heard
        self.task = asyncio.ensure_future(self._in_turn(transcriber, recording, options, turn))
        self.task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Nobody wants the rest."""
        self._unwanted.set()

    async def segments(self) -> AsyncIterator[Segment]:
        """As they are heard; what went wrong is raised."""
        while (segment := await self._segments.get()) is not None:
            yield segment
        self.task.result()

    def transcription(self, segments: list[Segment]) -> Transcription:
        """All of it, when it is done."""
        assert self._stream is not None
        text = "".join(segment.text for segment in segments)
        return Transcription(text, self._stream.language, self._stream.seconds, segments)

    async def _in_turn(
        self, transcriber: Transcriber, recording: bytes, options: SpeechOptions, turn: asyncio.Lock
    ) -> None:
        def work() -> None:
            sound = open_sound(recording)
            self.remarks = sound.told
            self._stream = transcriber.stream(sound, progress=self._watch, options=options)
            for segment in self._stream:
                self._loop.call_soon_threadsafe(self._segments.put_nowait, segment)

        async with turn:  # memory is that of one recording
            self._watch(0, 0)
            await run_in_threadpool(work)

    def _watch(self, _done: float, _all: float) -> None:
        if self._unwanted.is_set():
            raise ClientDisconnect
        if time.monotonic() > self._latest:
            raise ApiError(408, "the recording takes too long", code="timeout")

    def _ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled():
            task.exception()  # or asyncio says that nobody has asked for it
        self._segments.put_nowait(None)
