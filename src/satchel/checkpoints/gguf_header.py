"""The header of a GGUF file: key-value pairs and tensor descriptions.

The gguf library's own reader makes an array for every token of the vocabulary; this one takes
a small part of its time and memory. Every count is checked against the bytes that are there
before anything is made of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from satchel.checkpoints.weightfile import WeightFile
from satchel.errors import CheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
READ_BYTES = 4 << 20
# The largest vocabularies need some 20 MB and a million and a half entries.
MAX_HEADER_BYTES = 256 << 20
MAX_ARRAY_ENTRIES = 8 << 20
MAX_PAIRS = MAX_TENSORS = 1 << 16
MAX_DIMENSIONS = 4

# value type -> numpy's name of it; strings are 8, arrays are 9
SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class GgufTensor:
    """A tensor as the header describes it."""

    shape: tuple[int, ...]  # slowest dimension first, as numpy has it
    type: int
    offset: int  # from the start of the data


@dataclass(frozen=True)
class GgufHeader:
    """All that a GGUF file says before its data."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    data_offset: int


def read_gguf_header(file: WeightFile) -> GgufHeader:
    """Parse and check the header of a GGUF file."""
    return _Parser(file).parse()


class _Parser:
    def __init__(self, file: WeightFile) -> None:
        self.file = file
        self.buffer = b""
        self.position = 0
        self.entries = 0

    def parse(self) -> GgufHeader:
        if self.take(4) != MAGIC:
            self.fail("does not start as a GGUF file", "Give a .gguf file")
        version = self.u32()
        if version not in VERSIONS:
            self.fail(
                f"is of GGUF version {version}",
                "Versions 2 and 3, little-endian, are read: convert the model again",
            )
        tensor_count, pair_count = self.u64(), self.u64()
        if pair_count > MAX_PAIRS or tensor_count > MAX_TENSORS:
            self.fail(f"announces {pair_count} key-value pairs and {tensor_count} tensors")
        metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self.string("a key")
            if key in metadata:
                self.fail(f"has the key {key} twice")
            metadata[key] = self.value(key)
        tensors: dict[str, GgufTensor] = {}
        for _ in range(tensor_count):
            name = self.string("a tensor's name")
            if name in tensors:
                self.fail(f"has the tensor {name} twice")
            tensors[name] = self.tensor(name)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            self.fail(f"has the alignment {alignment!r}, which is not a power of two")
        for name, tensor in tensors.items():
            if tensor.offset % alignment:
                self.fail(f"has the tensor {name} at offset {tensor.offset}, which is not aligned")
        data_offset = -(-self.position // alignment) * alignment
        return GgufHeader(metadata, tensors, data_offset)

    def tensor(self, name: str) -> GgufTensor:
        dimensions = self.u32()
        if dimensions > MAX_DIMENSIONS:
            self.fail(f"has the tensor {name} with {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))
        if not all(shape):
            self.fail(f"has the tensor {name} with an empty dimension")
        return GgufTensor(shape[::-1] or (1,), self.u32(), self.u64())  # none: a single number

    def value(self, key: str) -> Any:
        kind = self.u32()
        if kind == STRING:
            return self.string(key)
        if kind == ARRAY:
            return self.array(key)
        return self.numbers(kind, 1, key)[0]

    def array(self, key: str) -> list[Any]:
        kind, count = self.u32(), self.u64()
        self.entries += count
        if self.entries > MAX_ARRAY_ENTRIES:
            self.fail(f"has {count} values under {key}, more than any model needs")
        if kind == STRING:
            return self.strings(count, key)
        return self.numbers(kind, count, key)

    def numbers(self, kind: int, count: int, key: str) -> list[Any]:
        if kind not in SCALARS:
            self.fail(f"has a value of unknown type {kind} under {key}")
        dtype = np.dtype(SCALARS[kind])
        self.check_count(count, dtype.itemsize, f"values under {key}")
        values: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return values

    def strings(self, count: int, key: str) -> list[str]:
        self.check_count(count, 8, f"strings under {key}")
        result = []
        length_at = struct.Struct("<Q").unpack_from
        buffer, position = self.buffer, self.position
        for _ in range(count):
            end = position + 8
            if end <= len(buffer):
                end += length_at(buffer, position)[0]
            if end > len(buffer):
                # Rare: the buffer ends here. Read on, and go by the slow way once.
                self.position = position
                result.append(self.string(key))
                buffer, position = self.buffer, self.position
                continue
            try:
                result.append(buffer[position + 8 : end].decode())
            except UnicodeDecodeError:
                self.fail(f"has text under {key} that is not UTF-8")
            position = end
        self.position = position
        return result

    def string(self, what: str) -> str:
        try:
            return self.take(self.u64()).decode()
        except UnicodeDecodeError:
            self.fail(f"has text in {what} that is not UTF-8")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        end = self.position + count
        if end > len(self.buffer):
            if end > self.file.size:
                self.fail("ends within its header")
            if end > MAX_HEADER_BYTES:
                self.fail("has a header that is larger than any model needs")
            more = max(READ_BYTES, end - len(self.buffer))
            self.buffer += self.file.read(len(self.buffer), more)
        start, self.position = self.position, end
        return self.buffer[start:end]

    def check_count(self, count: int, size: int, what: str) -> None:
        if count * size > self.file.size - self.position:
            self.fail(f"announces {count} {what}, more than its size allows")

    def fail(self, problem: str, advice: str = "The file is damaged: fetch it again") -> NoReturn:
        raise CheckpointError(f"{self.file.path} {problem} (at byte {self.position})", advice)
