"""What an evaluation has found so far, kept so that an interrupted one goes on where it was."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from satchel.files import atomic_write
from satchel.sources.cache import cache_folder

_SAVE_EVERY_S = 2.0

Item = TypeVar("Item")
Entry = list[Any]


def evaluations_folder() -> Path:
    """Where results are kept, beside the programs of the cache."""
    return cache_folder() / "evaluations"


def key_digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]


class Record:
    """One entry per window or item, in order, in a file that the key names.

    A key tells all that the result depends on: what runs, on what, and how it is cut.
    """

    def __init__(self, key: Mapping[str, Any], restart: bool = False) -> None:
        self.key = dict(key)
        self.path = evaluations_folder() / f"{key_digest(key)}.json"
        self.entries: list[Entry] = []
        self.seconds = 0.0
        self._saved = time.monotonic()
        if not restart:
            self._load()
        self.resumed = len(self.entries)

    def _load(self) -> None:
        # A damaged file is as good as none.
        with suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(self.path.read_text(encoding="utf-8"))
            if document["key"] == self.key:
                self.entries = [list(entry) for entry in document["entries"]]
                self.seconds = float(document["seconds"])

    def save(self) -> None:
        document = {"key": self.key, "entries": self.entries, "seconds": self.seconds}
        with atomic_write(self.path) as file:
            file.write(json.dumps(document).encode())
        self._saved = time.monotonic()

    def complete(
        self,
        items: Sequence[Item],
        measure: Callable[[Item], Entry],
        told: Callable[[int], None] = lambda _: None,
    ) -> list[Entry]:
        """The entries of all items; those that are there already are not measured again."""
        del self.entries[len(items) :]
        told(len(self.entries))
        try:
            for item in items[len(self.entries) :]:
                started = time.perf_counter()
                entry = measure(item)
                self.entries.append(entry)
                self.seconds += time.perf_counter() - started
                if time.monotonic() - self._saved >= _SAVE_EVERY_S:
                    self.save()
                told(len(self.entries))
        finally:
            if len(self.entries) > self.resumed or not self.resumed:
                self.save()
        return self.entries
