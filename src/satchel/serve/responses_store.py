"""Responses that were given, for those that go on from them. They are in memory only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from satchel.serve.errors import ApiError
from satchel.serve.http import as_json

Item = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """A response, and all items of its conversation before it."""

    response: dict[str, Any]
    input: list[Item]

    @property
    def items(self) -> list[Item]:
        """What a response that follows begins with."""
        return [*self.input, *self.response["output"]]


class ResponseStore:
    """Keeps the latest responses, up to so many bytes of JSON.

    >>> store = ResponseStore(1000)
    >>> store.keep(Kept({"id": "resp-1", "output": []}, []))
    >>> store.find("resp-1").items
    []
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[str, tuple[Kept, int]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, kept: Kept) -> None:
        size = len(as_json([kept.response, kept.input]))
        with self._lock:
            self._kept[kept.response["id"]] = kept, size
            self._bytes += size
            while self._bytes > self._most:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def find(self, name: str, param: str | None = None) -> Kept:
        """ApiError if it is not there, or not any more."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name][0]
        raise ApiError(
            400 if param else 404,
            f"there is no response {name!r}, or it is no longer kept; send all input",
            param=param,
            code="previous_response_not_found" if param else "not_found",
        )

    def delete(self, name: str) -> None:
        self.find(name)
        with self._lock:
            self._bytes -= self._kept.pop(name, (None, 0))[1]
