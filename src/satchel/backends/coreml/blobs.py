"""The file of a package's weights, as Core ML reads it: every tensor behind a header of its own.

Tensors are written one after the other from blocks, so that none is ever whole in memory, and
where each will lie is known before the first is made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from satchel.backends.weight_rows import Bytes
from satchel.runtime.program import Program

FLOAT16, FLOAT32, UINT8, INT8, INT4, UINT4, INT32 = 1, 2, 3, 4, 8, 11, 14  # kinds of numbers
_ALIGNMENT = 64
_SENTINEL, _VERSION = 0xDEADBEEF, 2
_HEADER = struct.Struct("<II56x")  # how many tensors, version
_RECORD = struct.Struct("<IIQQQ32x")  # sentinel, kind, bytes, where, bits that fill the last byte


@dataclass
class BlobFile:
    """Tensors by name; the offset of one is that of its header."""

    parts: dict[str, tuple[int, Bytes]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    size: int = _HEADER.size

    def add(self, name: str, kind: int, data: Bytes) -> int:
        """Where a tensor lies, which is stored once."""
        if name not in self.offsets:
            self.offsets[name] = self.size
            self.parts[name] = kind, data
            self.size += _RECORD.size + data.size + -data.size % _ALIGNMENT
        return self.offsets[name]

    def write(self, path: Path, program: Program, told: Callable[[int], None]) -> None:
        """``told`` is told how many bytes have been written."""
        with path.open("wb") as file:
            file.write(_HEADER.pack(len(self.parts), _VERSION))
            for name, (kind, data) in self.parts.items():
                start = self.offsets[name]
                assert file.tell() == start
                record = _SENTINEL, kind, data.size, start + _RECORD.size, 0
                file.write(_RECORD.pack(*record))
                for block in data.make(program):
                    file.write(block)
                    told(file.tell())
                assert file.tell() == start + _RECORD.size + data.size
                file.write(bytes(-data.size % _ALIGNMENT))
