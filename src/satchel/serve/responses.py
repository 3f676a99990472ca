"""/v1/responses: the same answers as chat completions, as items and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from satchel.llm.generation import Generation
from satchel.serve import chat
from satchel.serve.answer import finish_reason, new_id, now
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.http import OWN_END, event
from satchel.serve.jobs import Job
from satchel.serve.models import ServedModel
from satchel.serve.responses_input import as_chat, input_items
from satchel.serve.responses_store import Item, Kept, ResponseStore
from satchel.serve.settings import Settings
from satchel.serve.wanted import Wanted


@dataclass(frozen=True)
class ResponseAsk:
    """A request that can begin."""

    chat: chat.ChatAsk
    fields: Fields
    input: list[Item]  # of the whole conversation
    store: ResponseStore

    @property
    def generations(self) -> list[Generation]:
        return self.chat.generations

    @property
    def wanted(self) -> Wanted:
        return self.chat.wanted


class Responses:
    """The endpoint of one server, with the responses that it has given."""

    FRAMING = OWN_END

    def __init__(self, most_bytes: int) -> None:
        self.store = ResponseStore(most_bytes)

    def prepare(self, model: ServedModel, fields: Fields, settings: Settings) -> ResponseAsk:
        """Check all of a request, and render its prompt."""
        previous = fields.text("previous_response_id")
        before = self.store.find(previous, "previous_response_id").items if previous else []
        items = [*before, *input_items(fields)]
        try:
            asked = chat.prepare(model, as_chat(fields, items), settings)
        except ApiError as error:
            error.param = error.param and error.param.replace("messages", "input")
            raise
        return ResponseAsk(asked, fields, items, self.store)

    async def whole(self, job: Job, ask: ResponseAsk) -> dict[str, Any]:
        """The response when the answer has ended."""
        head, items = _head(), _Items()
        async for _ in _events(job, ask, items):
            pass
        return _ended(ask, head, items)

    async def stream(self, job: Job, ask: ResponseAsk) -> AsyncIterator[bytes]:
        """Events as the answer comes, numbered."""
        head, items = _head(), _Items()
        number = 0

        def told(made: dict[str, Any]) -> bytes:
            nonlocal number
            number += 1
            return event({**made, "sequence_number": number - 1}, made["type"])

        for name in ("created", "in_progress"):
            begun = _response(ask, head, items, ended=False)
            yield told({"type": f"response.{name}", "response": begun})
        async for made in _events(job, ask, items):
            yield told(made)
        ended = _ended(ask, head, items)
        yield told({"type": f"response.{ended['status']}", "response": ended})


class _Items:
    """Puts an answer's deltas into items, and tells each change as an event."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._calls: dict[int, int] = {}  # a call's index to its item's

    def take(self, delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if reasoning := delta.get("reasoning_content"):
            at = yield from self._part("reasoning", "reasoning_text")
            yield from self._text(at, reasoning, "response.reasoning_text.delta")
        if content := delta.get("content"):
            at = yield from self._part("message", "output_text")
            yield from self._text(at, content, "response.output_text.delta", logprobs=[])
        for call in delta.get("tool_calls", ()):
            yield from self._call(call)

    def finish(self) -> Iterator[dict[str, Any]]:
        for at, item in enumerate(self.items):
            item["status"] = "completed"
            where = {"item_id": item["id"], "output_index": at}
            if item["type"] == "function_call":
                told = {"arguments": item["arguments"], "name": item["name"]}
                yield {"type": "response.function_call_arguments.done", **where, **told}
            else:
                (part,) = item["content"]
                kind = "output_text" if item["type"] == "message" else "reasoning_text"
                more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
                where["content_index"] = 0
                yield {"type": f"response.{kind}.done", **where, "text": part["text"], **more}
                yield {"type": "response.content_part.done", **where, "part": part}
            yield {"type": "response.output_item.done", "output_index": at, "item": item}

    def _begin(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.items.append(item)
        empty = {**item, "content": []} if "content" in item else dict(item)
        at = len(self.items) - 1
        yield {"type": "response.output_item.added", "output_index": at, "item": empty}

    def _part(self, kind: str, part_kind: str) -> Any:
        """The item that is being written, or a new one."""
        if not self.items or self.items[-1]["type"] != kind:
            part: dict[str, Any] = {"type": part_kind, "text": ""}
            if kind == "message":
                part["annotations"] = []
            own: Item = {"role": "assistant"} if kind == "message" else {"summary": []}
            name = new_id("msg_" if kind == "message" else "rs_")
            item: dict[str, Any] = {"type": kind, "id": name, "status": "in_progress", **own}
            yield from self._begin(item | {"content": [part]})
            at = len(self.items) - 1
            where = {"item_id": item["id"], "output_index": at, "content_index": 0}
            yield {"type": "response.content_part.added", **where, "part": dict(part)}
        return len(self.items) - 1

    def _text(self, at: int, text: str, kind: str, **more: Any) -> Iterator[dict[str, Any]]:
        item = self.items[at]
        item["content"][0]["text"] += text
        where = {"item_id": item["id"], "output_index": at, "content_index": 0}
        yield {"type": kind, **where, "delta": text, **more}

    def _call(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if call["index"] not in self._calls:
            self._calls[call["index"]] = len(self.items)
            yield from self._begin(
                {
                    "type": "function_call",
                    "id": new_id("fc_"),
                    "call_id": call["id"],
                    "name": call["function"]["name"],
                    "arguments": "",
                    "status": "in_progress",
                }
            )
        if arguments := call["function"].get("arguments"):
            at = self._calls[call["index"]]
            item = self.items[at]
            item["arguments"] += arguments
            where = {"item_id": item["id"], "output_index": at}
            yield {"type": "response.function_call_arguments.delta", **where, "delta": arguments}


def _response(ask: ResponseAsk, head: dict[str, Any], items: _Items, ended: bool) -> dict[str, Any]:
    fields = ask.fields
    (generation,) = ask.generations
    cut = ended and finish_reason(generation) == "length"
    counted = ask.chat.usage() if ended else None
    return {
        **head,
        "object": "response",
        "status": ("incomplete" if cut else "completed") if ended else "in_progress",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": ask.chat.name,
        "output": items.items,
        "instructions": fields.get("instructions"),
        "previous_response_id": fields.get("previous_response_id"),
        "store": fields.switch("store", True),
        "metadata": fields.get("metadata") or {},
        "tools": fields.get("tools") or [],
        "tool_choice": fields.get("tool_choice") or "auto",
        "parallel_tool_calls": fields.switch("parallel_tool_calls", True),
        "temperature": ask.wanted.sampling.temperature,
        "top_p": ask.wanted.sampling.top_p,
        "max_output_tokens": ask.wanted.max_new_tokens,
        "text": fields.get("text") or {"format": {"type": "text"}},
        "usage": counted
        and {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": counted["prompt_tokens_details"],
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": counted["completion_tokens_details"],
            "total_tokens": counted["total_tokens"],
        },
    }


def _head() -> dict[str, Any]:
    return {"id": new_id("resp_"), "created_at": now()}


def _ended(ask: ResponseAsk, head: dict[str, Any], items: _Items) -> dict[str, Any]:
    """The response at the end; kept, unless that is not wanted."""
    response = _response(ask, head, items, ended=True)
    if response["store"]:
        ask.store.keep(Kept(response, ask.input))
    return response


async def _events(job: Job, ask: ResponseAsk, items: _Items) -> AsyncIterator[dict[str, Any]]:
    (answer,) = ask.chat.answers
    async for progress in job:
        deltas = answer.push(progress.text, progress.tokens)
        if progress.ended:
            deltas += answer.finish()
        for delta in deltas:
            for made in items.take(delta):
                yield made
    for made in items.finish():
        yield made
