"""The vendor's profile of compiled graphs: cycles of the NPU, or of its emulator, by op."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

# "make.linear_2.exact_2:OpId_26 (cycles)" is of the node linear_2; others are the compiler's own.
_NODE = re.compile(r"make\.([a-z0-9_]+?)(?:_\d+)?\.[a-z0-9_]+:OpId_\d+ \(cycles\)")
_OTHER = "moves and conversions"
Cycles = dict[str, tuple[int, int]]  # by op: calls, cycles


class ProfileFiles:
    """The files that sessions write while they run; each event is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {}

    def file(self, number: int, method: str) -> Path:
        return self.folder / f"{number}.{method}.csv"

    def take(self) -> Cycles:
        """What came since the last time."""
        found: Cycles = {}
        for path in sorted(self.folder.glob("*.csv")):
            with path.open(newline="", encoding="utf-8", errors="replace") as file:
                file.seek(self._read.get(path, 0))
                for op, cycles in events(file.read()):
                    calls, spent = found.get(op, (0, 0))
                    found[op] = calls + 1, spent + cycles
                self._read[path] = file.tell()
        return found


def events(text: str) -> Iterator[tuple[str, int]]:
    """(op, cycles) of each node in a profile.

    >>> row = "0,NODE,7,CYCLES,BACKEND,SUB-EVENT,make.rms_norm_3.exact:OpId_1 (cycles)"
    >>> list(events(row))
    [('rms_norm', 7)]
    """
    for row in csv.reader(text.splitlines()):
        if len(row) == 7 and row[1] == "NODE" and row[3] == "CYCLES" and row[2].isdigit():
            match = _NODE.fullmatch(row[6])
            yield (match[1] if match else _OTHER), int(row[2])
