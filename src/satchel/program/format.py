"""The program file's fixed numbers and its small binary encoding. docs/format.md is the spec."""

from __future__ import annotations

import hashlib
import struct
import unicodedata
from dataclasses import dataclass
from enum import IntEnum

from satchel.errors import GraphError

MAGIC = b"SATCHEL\0"
VERSION = 2  # of files without the section `text`
TEXT_VERSION = 3  # of files with it
HEADER_SIZE = 64
RECORD_SIZE = 64
ALIGNMENT = 256  # the strictest that a GPU's driver asks for
WEIGHTS_ALIGNMENT = 4096  # a page, so that the weights can be mapped and advised on alone
MAX_GROUP = 65536  # so that the products of a group add up in 32 bits
MAX_TEXT = 65535

_HEADER = struct.Struct("<8sIIQQ")
_RECORD = struct.Struct("<IIQQQ32s")


class Section(IntEnum):
    tokenizer = 1
    methods = 2
    weight_index = 3
    weights = 4
    metadata = 5
    text = 6


@dataclass(frozen=True)
class SectionRecord:
    kind: Section
    offset: int
    size: int
    digest: bytes


def align(offset: int, alignment: int = ALIGNMENT) -> int:
    return -(-offset // alignment) * alignment


def encode_header(records: list[SectionRecord], file_size: int) -> bytes:
    """The header and the section table, which one digest covers."""
    version = TEXT_VERSION if any(r.kind is Section.text for r in records) else VERSION
    head = _HEADER.pack(MAGIC, version, len(records), file_size, 0)
    table = b"".join(_RECORD.pack(r.kind, 0, r.offset, r.size, 0, r.digest) for r in records)
    return head + hashlib.sha256(head + table).digest() + table


class Encoder:
    """Appends little-endian numbers and length-prefixed strings."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def u8(self, value: int) -> None:
        self._parts.append(struct.pack("<B", value))

    def u32(self, value: int) -> None:
        self._parts.append(struct.pack("<I", value))

    def u64(self, value: int) -> None:
        self._parts.append(struct.pack("<Q", value))

    def i64(self, value: int) -> None:
        self._parts.append(struct.pack("<q", value))

    def f64(self, value: float) -> None:
        self._parts.append(struct.pack("<d", value))

    def text(self, value: str) -> None:
        """A text that the loader takes: UTF-8 without control characters."""
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise GraphError(f"{value!r} cannot be written as UTF-8") from None
        if len(data) > MAX_TEXT or any(unicodedata.category(c) == "Cc" for c in value):
            raise GraphError(f"{value[:80]!r} is too long or holds control characters")
        self._parts.append(struct.pack("<H", len(data)) + data)

    def raw(self, value: bytes) -> None:
        self._parts.append(value)

    def finish(self) -> bytes:
        return b"".join(self._parts)
