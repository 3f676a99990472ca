"""Just enough of protocol buffers' wire format to read a sentencepiece model."""

from __future__ import annotations

from collections.abc import Iterator

from satchel.errors import TokenizerError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_fields(message: memoryview, where: str) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in order: numbers as ``int``, all else as bytes.

    >>> list(read_fields(memoryview(bytes([0x08, 0x96, 0x01])), "example"))
    [(1, 150)]
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _read_varint(message, at, where)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            number, at = _read_varint(message, at, where)
            yield field, number
            continue
        if wire == _BYTES:
            length, at = _read_varint(message, at, where)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise _damaged(where, f"wire type {wire} at byte {at}")
        if length > end - at:
            raise _damaged(where, f"a field of {length} bytes at byte {at} passes the end")
        yield field, message[at : at + length]
        at += length


def _read_varint(message: memoryview, at: int, where: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _damaged(where, f"a number ends at byte {at} without its last byte")


def _damaged(where: str, why: str) -> TokenizerError:
    return TokenizerError(
        f"{where} is not a sentencepiece model: {why}",
        "Get the file again; a tokenizer.model of Llama 3 is a text file of ranks instead",
    )
