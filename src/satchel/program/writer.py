"""Writes a program file: weights one block of rows at a time, the whole atomically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from satchel.encodings.encoding import Encoding
from satchel.errors import GraphError
from satchel.files import atomic_write
from satchel.graph.ir import DType, Graph, TensorType, Value, Weight
from satchel.program.format import (
    ALIGNMENT,
    HEADER_SIZE,
    MAX_GROUP,
    RECORD_SIZE,
    WEIGHTS_ALIGNMENT,
    Encoder,
    Section,
    SectionRecord,
    align,
    encode_header,
)
from satchel.program.methods import collect_initial, encode_methods

# Gives a weight's bytes, in order: all of its codes, then all of its scales.
WeightEncoder = Callable[[Weight, Encoding], Iterator[bytes | memoryview]]

_DIGEST_SIZE = 32
_PAYLOAD_BLOCK = 8 << 20


@dataclass(frozen=True)
class StoredWeight:
    """A weight's or a constant's place in the weights section."""

    value: Value
    encoding: Encoding
    offset: int
    codes_size: int
    scales_size: int

    @property
    def scales_offset(self) -> int:
        return align(self.offset + self.codes_size) if self.scales_size else 0

    @property
    def end(self) -> int:
        return max(self.offset + self.codes_size, self.scales_offset + self.scales_size)


@dataclass
class ProgramWriter:
    """Lays a program out, which tells its size, and then writes it.

    The layout depends on shapes and encodings only, so it is known before any weight is read.
    """

    graphs: Sequence[Graph]
    encodings: Mapping[str, Encoding]
    tokenizer: bytes = b""
    payloads: Mapping[str, Path] = field(default_factory=dict)  # files, by the names they get
    text: bytes = b""  # the compiled tokenizer; without one there is no such section
    weights: list[StoredWeight] = field(init=False)
    methods: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.weights = []
        found: dict[str, Value] = {}
        for graph in self.graphs:
            for value in graph.values():
                if value.weight or value.constant is not None:
                    _require_same(found.setdefault(value.name, value), value)
        for initial in collect_initial(self.graphs):
            found[initial.name] = initial
        for name, path in self.payloads.items():
            found[name] = Value(name, TensorType((path.stat().st_size,), DType.u8))
        offset = 0
        for value in found.values():
            if self._encoding(value).group > MAX_GROUP:
                raise GraphError(
                    f"{value.name}: a group has at most {MAX_GROUP} columns",
                    "Choose a smaller group size.",
                )
            codes, scales = self._encoding(value).sizes(_fixed_shape(value))
            stored = StoredWeight(value, self._encoding(value), offset, codes, scales)
            self.weights.append(stored)
            offset = align(stored.end)
        self.methods = encode_methods(self.graphs, {n: i for i, n in enumerate(found)})

    def _encoding(self, value: Value) -> Encoding:
        return self.encodings[value.name] if value.weight else Encoding(value.dtype.name)

    @property
    def weights_size(self) -> int:
        return self.weights[-1].end if self.weights else 0

    @property
    def _index_size(self) -> int:
        return len(self._index([bytes(_DIGEST_SIZE)] * len(self.weights)))

    def _places(self) -> dict[Section, tuple[int, int]]:
        """Offset and size of every section but the metadata, which comes last."""
        sizes = {
            Section.tokenizer: len(self.tokenizer),
            Section.text: len(self.text),
            Section.methods: len(self.methods),
            Section.weight_index: self._index_size,
            Section.weights: self.weights_size,
        }
        if not self.text:
            del sizes[Section.text]
        at = HEADER_SIZE + RECORD_SIZE * (len(sizes) + 1)
        places = {}
        for section, size in sizes.items():
            at = align(at, WEIGHTS_ALIGNMENT if section is Section.weights else ALIGNMENT)
            places[section] = (at, size)
            at += size
        return places

    def file_size(self, metadata_size: int) -> int:
        offset, size = self._places()[Section.weights]
        return align(offset + size) + metadata_size

    def write(
        self,
        path: Path,
        encode_weight: WeightEncoder,
        metadata: Callable[[], Mapping[str, Any]],
        overwrite: bool = False,
    ) -> None:
        """Write the file. ``metadata`` is asked for last, when the weights have been seen."""
        places = self._places()
        with atomic_write(path, overwrite) as file:
            base, _ = places[Section.weights]
            digests = [self._write_weight(file, base, w, encode_weight) for w in self.weights]
            document = encode_metadata(metadata())
            contents = {
                Section.tokenizer: self.tokenizer,
                Section.methods: self.methods,
                Section.weight_index: self._index(digests),
                Section.metadata: document,
            }
            if self.text:
                contents[Section.text] = self.text
            end = align(base + self.weights_size)
            places[Section.metadata] = (end, len(document))
            for section, data in contents.items():
                file.seek(places[section][0])
                file.write(data)
            file.truncate(end + len(document))
            records = []
            for section in sorted(places, key=lambda s: places[s][0]):
                offset, size = places[section]
                # The weights' digest is that of their own digests, which the index holds.
                covered = contents.get(section, b"".join(digests))
                digest = hashlib.sha256(covered).digest()
                records.append(SectionRecord(section, offset, size, digest))
            file.seek(0)
            file.write(encode_header(records, end + len(document)))

    def _write_weight(
        self, file: IO[bytes], base: int, stored: StoredWeight, encode_weight: WeightEncoder
    ) -> bytes:
        digest = hashlib.sha256()
        at = base + stored.offset
        file.seek(at)
        written = 0
        for block in self._blocks(stored, encode_weight):
            if written == stored.codes_size and stored.scales_size:
                file.seek(base + stored.scales_offset)
            digest.update(block)
            file.write(block)
            written += len(block)
        expected = stored.codes_size + stored.scales_size
        assert written == expected, f"{stored.value.name}: {written} bytes, not {expected}"
        return digest.digest()

    def _blocks(
        self, stored: StoredWeight, encode_weight: WeightEncoder
    ) -> Iterator[bytes | memoryview]:
        if stored.value.weight:
            yield from encode_weight(stored.value.weight, stored.encoding)
        elif stored.value.constant is not None:
            yield stored.value.constant.tobytes()
        else:
            with self.payloads[stored.value.name].open("rb") as file:
                while block := file.read(_PAYLOAD_BLOCK):
                    yield block

    def _index(self, digests: Sequence[bytes]) -> bytes:
        out = Encoder()
        out.u32(len(self.weights))
        for stored, digest in zip(self.weights, digests, strict=True):
            shape = _fixed_shape(stored.value)
            out.text(stored.value.name)
            out.u8(stored.encoding.code)
            out.u8(len(shape))
            for dim in shape:
                out.i64(dim)
            out.u32(stored.encoding.group)
            out.u64(stored.offset)
            out.u64(stored.codes_size)
            out.u64(stored.scales_offset)
            out.u64(stored.scales_size)
            out.raw(digest)
        return out.finish()


def _require_same(first: Value, second: Value) -> None:
    """Methods share weights by name, so one name may not stand for two things."""
    if first.weight and second.weight:
        same = first.weight == second.weight
    elif first.constant is not None and second.constant is not None:
        same = first.constant.tobytes() == second.constant.tobytes()
    else:
        same = False
    if not same or first.type != second.type:
        raise GraphError(f"there are two different weights named {first.name}")


def encode_metadata(metadata: Mapping[str, Any]) -> bytes:
    # Of a checkpoint's name, bytes that are no letters are question marks.
    return json.dumps(metadata, ensure_ascii=False, indent=1).encode(errors="replace")


def _fixed_shape(value: Value) -> tuple[int, ...]:
    assert all(isinstance(d, int) for d in value.shape)
    return tuple(d for d in value.shape if isinstance(d, int))
