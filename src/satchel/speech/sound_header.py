"""What the header of a sound file says of its size, and what is there: libsndfile is silent."""

from __future__ import annotations

import io
import os
from typing import BinaryIO

_UNKNOWN = 0xFFFFFFFF  # of a size: all that follows, as programs write it that write to a pipe
_NEVER_WRITTEN = 0xFFFFFF00  # from here on it is no size
_MOST_CHUNKS = 64  # before the samples
_LARGEST_PAGE = 1 << 17  # of an OGG file, twice


def size_of(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def cut_off(file: BinaryIO) -> str:
    """What is missing at the end of a file, as a remark says it behind its name; or nothing."""
    size = size_of(file)
    file.seek(0)
    told = told_size(file.read(64))
    if size < told:
        return f"is cut off: {size / told:.0%} of it is there, and is transcribed."
    file.seek(0)
    if file.read(4) == b"OggS":
        file.seek(max(0, size - _LARGEST_PAGE))
        _, _, page = file.read().rpartition(b"OggS")
        if len(page) < 2 or not page[1] & 4:  # the last page of a stream says that it is
            return "is cut off: what is there of it is transcribed."
    return ""


def told_size(head: bytes) -> int:
    """The size of a file of plain samples, as its header tells it; 0 if that is not known.

    >>> told_size(b"RIFF" + (36).to_bytes(4, "little") + b"WAVE")
    44
    """
    little, big = (int.from_bytes(head[4:8], order) for order in ("little", "big"))
    if head[:4] == b"RF64" and head[12:16] == b"ds64":
        return 8 + int.from_bytes(head[20:28], "little")
    if head[:4] == b"riff":  # Sony's Wave64
        return int.from_bytes(head[16:24], "little")
    if head[:4] == b".snd":
        told, before = int.from_bytes(head[8:12], "big"), big
    elif head[:4] in (b"RIFF", b"FORM"):
        told, before = little if head[:1] == b"R" else big, 8
    else:
        return 0
    return told + before if told < _NEVER_WRITTEN else 0


def unfinished_wav(file: BinaryIO) -> int:
    """Where a WAV file has the size of its samples, if that was never written, or not to the end.

    A recorder that is stopped by force leaves a size of 0, or of some time ago. 0 if it is right.
    """
    size = size_of(file)
    file.seek(0)
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return 0
    at = len(head)
    for _ in range(_MOST_CHUNKS):
        file.seek(at)
        chunk = file.read(8)
        if len(chunk) < 8:
            return 0
        length = int.from_bytes(chunk[4:], "little")
        following = at + 8 + length + length % 2
        if chunk[:4] == b"data":
            file.seek(following)
            name = file.read(4)
            # Behind the samples there is nothing, or another chunk, whose name is ASCII.
            more = size - following >= 8 and not (name.isascii() and name.decode().isprintable())
            return at + 4 if more or (length == 0 and size > following) else 0
        at = following
    return 0


class Finished(io.RawIOBase):
    """A WAV file whose samples go on to the end of the file, whatever its header says."""

    def __init__(self, file: BinaryIO, place: int) -> None:
        self._file, self._place, self._size = file, place, size_of(file)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: object) -> int:
        into = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        self._file.seek(self._at)
        data = bytearray(self._file.read(len(into)))
        for place in (4, self._place):  # of the whole, and of the samples
            for number, byte in enumerate(_UNKNOWN.to_bytes(4, "little"), place - self._at):
                if 0 <= number < len(data):
                    data[number] = byte
        into[: len(data)] = data
        self._at += len(data)
        return len(data)
