"""A program file as plain data, read and written from docs/format.md alone (nothing of Satchel).

``read`` and ``write`` are inverse; ``write`` gives any model right checksums, so that attacks on
the structure get past them.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Any

SECTIONS = {1: "tokenizer", 2: "methods", 3: "weight_index", 4: "weights", 5: "metadata", 6: "text"}
KINDS = {name: number for number, name in SECTIONS.items()}
DTYPES = ["f32", "f16", "i32", "i64", "i8", "u8", "bool"]
ENCODINGS = {
    0: "f32",
    1: "f16",
    2: "i32",
    3: "u8",
    4: "boolean",
    16: "matrix_f32",
    17: "matrix_f16",
    18: "matrix_q4",
    19: "matrix_q8",
    20: "matrix_lpbq4",
    21: "matrix_q4_min",
    22: "matrix_q4_offset",
    23: "matrix_q8_offset",
    24: "matrix_i8",
    25: "matrix_q4_steps",
    26: "matrix_q5",
    27: "matrix_q5_min",
    28: "matrix_q4_k",
    29: "matrix_q5_k",
    30: "matrix_q6_k",
}
INPUT, ARENA, WEIGHT, STATE = range(4)
ABSENT = 0xFFFFFFFF


@dataclass
class Weight:
    name: str
    encoding: int
    shape: list[int]
    group: int
    offset: int
    codes_size: int
    scales_offset: int
    scales_size: int
    digest: bytes


@dataclass
class State:
    name: str
    dtype: int
    shape: list[int]
    kind: int = 0


@dataclass
class Value:
    name: str
    storage: int
    location: int
    dtype: int
    shape: list[int]


@dataclass
class Node:
    op: str
    inputs: list[int]
    outputs: list[int]
    attributes: list[tuple[str, int, Any]]


@dataclass
class Method:
    name: str
    arena: int
    symbols: list[tuple[str, int]]
    values: list[Value]
    inputs: list[int]
    outputs: list[int]
    nodes: list[Node]

    def value(self, name: str) -> Value:
        return next(v for v in self.values if v.name == name)

    def node(self, op: str, number: int = 0) -> Node:
        return [n for n in self.nodes if n.op == op][number]


Shaped = Weight | State | Value


@dataclass
class Model:
    states: list[State] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    weight_bytes: bytes = b""
    tokenizer: bytes = b""
    metadata: bytes = b"{}"
    text: bytes = b""

    def shaped(self) -> list[Shaped]:
        """Everything that has a shape."""
        return [*self.states, *self.weights, *(v for m in self.methods for v in m.values)]

    def weight(self, name: str) -> Weight:
        return next(w for w in self.weights if w.name == name)


def align(offset: int, to: int) -> int:
    return -(-offset // to) * to


# --- reading ---


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self) -> str:
        return bytes(self.take(f"{self.take('H')}s")).decode()

    def dims(self) -> list[int]:
        return [self.take("q") for _ in range(self.take("B"))]

    def ids(self, count_form: str) -> list[int]:
        return [self.take("I") for _ in range(self.take(count_form))]


@dataclass
class Record:
    kind: str
    offset: int
    size: int
    digest: bytes


def read_records(data: bytes) -> list[Record]:
    magic, version, count, size, reserved = struct.unpack_from("<8sIIQQ", data)
    assert (magic, size, reserved) == (b"SATCHEL\0", len(data), 0)
    assert (version, count) in ((2, 5), (3, 6))
    assert data[32:64] == hashlib.sha256(data[:32] + data[64 : 64 + 64 * count]).digest()
    records = []
    for i in range(count):
        kind, zero, at, length, more, digest = struct.unpack_from("<IIQQQ32s", data, 64 + 64 * i)
        assert zero == more == 0
        records.append(Record(SECTIONS[kind], at, length, digest))
    return records


def read_sections(data: bytes) -> dict[str, bytes]:
    return {r.kind: data[r.offset : r.offset + r.size] for r in read_records(data)}


def read(data: bytes) -> Model:
    parts = read_sections(data)
    states, methods = _read_methods(Reader(parts["methods"]))
    return Model(
        states,
        methods,
        _read_index(Reader(parts["weight_index"])),
        parts["weights"],
        parts["tokenizer"],
        parts["metadata"],
        parts.get("text", b""),
    )


def _read_index(r: Reader) -> list[Weight]:
    return [
        Weight(
            r.text(),
            r.take("B"),
            r.dims(),
            r.take("I"),
            r.take("Q"),
            r.take("Q"),
            r.take("Q"),
            r.take("Q"),
            r.take("32s"),
        )
        for _ in range(r.take("I"))
    ]


def _read_methods(r: Reader) -> tuple[list[State], list[Method]]:
    states = [State(r.text(), r.take("B"), r.dims(), r.take("B")) for _ in range(r.take("I"))]
    methods = []
    for _ in range(r.take("I")):
        name, arena = r.text(), r.take("Q")
        symbols = [(r.text(), r.take("q")) for _ in range(r.take("I"))]
        values = [
            Value(r.text(), r.take("B"), r.take("Q"), r.take("B"), r.dims())
            for _ in range(r.take("I"))
        ]
        inputs, outputs = r.ids("I"), r.ids("I")
        nodes = [
            Node(r.text(), r.ids("B"), r.ids("B"), [_read_attribute(r) for _ in range(r.take("B"))])
            for _ in range(r.take("I"))
        ]
        methods.append(Method(name, arena, symbols, values, inputs, outputs, nodes))
    assert r.at == len(r.data)
    return states, methods


def _read_attribute(r: Reader) -> tuple[str, int, Any]:
    name, kind = r.text(), r.take("B")
    if kind == 0:
        return name, kind, r.take("q")
    if kind == 1:
        return name, kind, r.take("d")
    if kind == 2:
        return name, kind, r.text()
    return name, kind, [r.take("q") for _ in range(r.take("I"))]


# --- writing ---


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<H", len(data)) + data


def _dims(shape: list[int]) -> bytes:
    return struct.pack(f"<B{len(shape)}q", len(shape), *shape)


def _ids(form: str, ids: list[int]) -> bytes:
    return struct.pack(f"<{form}{len(ids)}I", len(ids), *ids)


def _attribute(attribute: tuple[str, int, Any]) -> bytes:
    name, kind, value = attribute
    head = text(name) + bytes([kind])
    if kind == 2:
        return head + text(value)
    if kind == 3:
        return head + struct.pack(f"<I{len(value)}q", len(value), *value)
    return head + struct.pack("<d" if kind == 1 else "<q", value)


def write_methods(model: Model) -> bytes:
    out = [struct.pack("<I", len(model.states))]
    out += [
        text(s.name) + bytes([s.dtype]) + _dims(s.shape) + bytes([s.kind]) for s in model.states
    ]
    out.append(struct.pack("<I", len(model.methods)))
    for m in model.methods:
        out += [text(m.name), struct.pack("<QI", m.arena, len(m.symbols))]
        out += [text(name) + struct.pack("<q", maximum) for name, maximum in m.symbols]
        out.append(struct.pack("<I", len(m.values)))
        for v in m.values:
            head = struct.pack("<BQB", v.storage, v.location, v.dtype)
            out += [text(v.name), head, _dims(v.shape)]
        out += [_ids("I", m.inputs), _ids("I", m.outputs), struct.pack("<I", len(m.nodes))]
        for n in m.nodes:
            out += [text(n.op), _ids("B", n.inputs), _ids("B", n.outputs)]
            out += [bytes([len(n.attributes)]), *map(_attribute, n.attributes)]
    return b"".join(out)


def write_index(model: Model) -> bytes:
    out = [struct.pack("<I", len(model.weights))]
    for w in model.weights:
        out += [text(w.name), bytes([w.encoding]), _dims(w.shape)]
        places = (w.offset, w.codes_size, w.scales_offset, w.scales_size)
        out += [struct.pack("<I4Q", w.group, *places), w.digest]
    return b"".join(out)


def write_header(records: list[Record], size: int) -> bytes:
    version = 3 if any(r.kind == "text" for r in records) else 2
    head = struct.pack("<8sIIQQ", b"SATCHEL\0", version, len(records), size, 0)
    table = b"".join(
        struct.pack("<IIQQQ32s", KINDS[r.kind], 0, r.offset, r.size, 0, r.digest) for r in records
    )
    return head + hashlib.sha256(head + table).digest() + table


def write_sections(parts: dict[str, bytes], weights_digest: bytes) -> bytes:
    """Sections in the given order, at their places, with their checksums."""
    at = 64 + 64 * len(parts)
    records, body = [], b""
    for kind, data in parts.items():
        start = align(at, 4096 if kind == "weights" else 256)
        digest = weights_digest if kind == "weights" else hashlib.sha256(data).digest()
        records.append(Record(kind, start, len(data), digest))
        body += bytes(start - at) + data
        at = start + len(data)
    return write_header(records, at) + body


def write(model: Model) -> bytes:
    parts = {
        "tokenizer": model.tokenizer,
        "methods": write_methods(model),
        "weight_index": write_index(model),
        "weights": model.weight_bytes,
        "metadata": model.metadata,
    }
    if model.text:
        parts["text"] = model.text
    digests = b"".join(w.digest for w in model.weights)
    return write_sections(parts, hashlib.sha256(digests).digest())


def sign(data: bytearray) -> None:
    """Make the checksums of a file right again after its bytes were changed in place."""
    (count,) = struct.unpack_from("<I", data, 12)
    for i in range(count):
        kind, _, offset, size, _ = struct.unpack_from("<IIQQQ", data, 64 + 64 * i)
        if kind != KINDS["weights"]:
            digest = hashlib.sha256(data[offset : offset + size]).digest()
            data[96 + 64 * i : 128 + 64 * i] = digest
    data[32:64] = hashlib.sha256(data[:32] + data[64 : 64 + 64 * count]).digest()
