"""docs/format.md against the loader: a reader written from the spec sees what Program sees."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
from attacks import good_bytes, good_model
from numpy.typing import NDArray

from satchel.encodings.encoding import KINDS
from satchel.program import format as writer_format
from satchel.runtime.program import Program
from support import program_file as fm
from support.small_program import ENCODINGS, METADATA, SHAPES, TOKENIZER, WEIGHTS

SPEC = Path(__file__).parents[2] / "docs" / "format.md"


def _program(folder: Path) -> Program:
    path = folder / "good.satchel"
    path.write_bytes(good_bytes())
    return Program(path)


def test_reading_and_writing_by_the_spec_gives_the_same_bytes() -> None:
    assert fm.write(good_model()) == good_bytes()


def test_sections(tmp_path: Path) -> None:
    program, records = _program(tmp_path), fm.read_records(good_bytes())
    assert [(s["name"], s["offset"], s["size"], s["digest"]) for s in program.sections] == [
        (r.kind, r.offset, r.size, r.digest) for r in records
    ]
    sections = fm.read_sections(good_bytes())
    assert sections["tokenizer"] == TOKENIZER == program.section("tokenizer")
    assert program.metadata == METADATA
    for record in records:
        if record.kind != "weights":
            assert hashlib.sha256(sections[record.kind]).digest() == record.digest
    digests = b"".join(w.digest for w in good_model().weights)
    assert hashlib.sha256(digests).digest() == {r.kind: r.digest for r in records}["weights"]


def test_weight_index(tmp_path: Path) -> None:
    program, model = _program(tmp_path), good_model()
    base = {r.kind: r.offset for r in fm.read_records(good_bytes())}["weights"]
    assert [w["name"] for w in program.weights] == [w.name for w in model.weights]
    for theirs, ours in zip(program.weights, model.weights, strict=True):
        assert theirs["encoding"] == fm.ENCODINGS[ours.encoding]
        assert theirs["shape"] == ours.shape and theirs["group"] == ours.group
        assert theirs["offset"] == base + ours.offset
        data = model.weight_bytes
        codes = data[ours.offset : ours.offset + ours.codes_size]
        scales = data[ours.scales_offset : ours.scales_offset + ours.scales_size]
        assert hashlib.sha256(codes + scales).digest() == ours.digest == theirs["digest"]


def _packed_code(line_bytes: list[int], four: int, bits: int) -> int:
    """The code of a column, of which each of a step's lines has a byte."""
    if four < len(line_bytes):
        return line_bytes[four] & (1 << bits) - 1
    left = [byte >> place & 1 for byte in line_bytes for place in range(bits, 8)]
    own = left[(four - len(line_bytes)) * bits :][:bits]
    return sum(bit << place for place, bit in enumerate(own))


def _k_scales(data: bytes, block: int, lane: int, group: int) -> tuple[float, float]:
    """Scale and minimum of a group in a super-block of matrix_q4_k or matrix_q5_k."""
    steps = [struct.unpack_from("<e", data, block + i * 32 + lane * 2)[0] for i in range(2)]
    lines = [data[block + 64 + i * 64 + group % 4 * 16 + lane] for i in range(3)]
    half = group // 4
    whole = [
        (lines[i] >> 4 * half & 15) + 16 * (lines[2] >> 4 * i + 2 * half & 3) for i in range(2)
    ]
    return steps[0] * whole[0], steps[1] * whole[1]


def _decode_packed(model: fm.Model, w: fm.Weight, row: int, col: int) -> float:
    """An element of the encodings 26 to 30."""
    data, cols = model.weight_bytes, w.shape[1]
    (tile, lane), groups = divmod(row, 16), cols // w.group
    if w.encoding == 28:
        byte = data[w.offset + ((tile * (cols // 8) + col // 8) * 16 + lane) * 4 + col % 4]
        code = byte >> 4 if col % 8 >= 4 else byte & 15
    else:
        bits, columns, count = (6, 16, 3) if w.encoding == 30 else (5, 32, 5)
        step = w.offset + (tile * (cols // columns) + col // columns) * count * 64
        lines = [data[step + line * 64 + lane * 4 + col % 4] for line in range(count)]
        code = _packed_code(lines, col % columns // 4, bits)
    if w.encoding in (26, 27):
        at = (tile * groups + col // w.group) * 16 + lane
        (scale,) = struct.unpack_from("<e", data, w.scales_offset + at * 2)
        if w.encoding == 26:
            return float((code - 16) * scale)
        minima = w.scales_offset + fm.align(fm.align(w.shape[0], 16) * groups * 2, 64)
        return float(code * scale + struct.unpack_from("<e", data, minima + at * 2)[0])
    size = 288 if w.encoding == 30 else 256
    block = w.scales_offset + (tile * (cols // 256) + col // 256) * size
    group = col % 256 // w.group
    if w.encoding == 30:
        (step_size,) = struct.unpack_from("<e", data, block + lane * 2)
        (times,) = struct.unpack_from("<b", data, block + 32 + group * 16 + lane)
        return float((code - 32) * step_size * times)
    scale, minimum = _k_scales(data, block, lane, group)
    return float(code * scale - minimum)


def _decode(model: fm.Model, w: fm.Weight) -> NDArray[np.float32]:
    """A weight by the words of the spec: one element after another."""
    data, offset = model.weight_bytes, w.offset
    rows, cols = w.shape

    def element(row: int, col: int) -> float:
        tile, lane = divmod(row, 16)
        if w.encoding in (16, 17):
            form = "<f" if w.encoding == 16 else "<e"
            at = offset + ((tile * cols + col) * 16 + lane) * struct.calcsize(form)
            return float(struct.unpack_from(form, data, at)[0])
        if w.encoding >= 26:
            return _decode_packed(model, w, row, col)
        if w.encoding == 24:
            at = offset + ((tile * (-(-cols // 4)) + col // 4) * 16 + lane) * 4 + col % 4
            return float(struct.unpack_from("<b", data, at)[0])
        groups, runs = cols // w.group, -(-cols // 1024)
        if w.encoding == 25:
            run, in_run = divmod(col, 1024)
            steps = w.scales_offset + tile * (64 * runs + 16 * groups)
            steps += run * (64 + 16 * 1024 // w.group)
            (step,) = struct.unpack_from("<f", data, steps + lane * 4)
            (times,) = struct.unpack_from("<b", data, steps + 64 + in_run // w.group * 16 + lane)
            scale = step * times
        else:
            at = w.scales_offset + ((tile * groups + col // w.group) * 16 + lane) * 2
            (scale,) = struct.unpack_from("<e", data, at)
        tiles = fm.align(rows, 16) // 16
        second = w.scales_offset + fm.align(tiles * (cols // w.group) * 16 * 2, 64)
        added = 0.0
        if w.encoding in (21, 22, 23):
            form = "<e" if w.encoding == 21 else "<f"
            number = (tile * (cols // w.group) + col // w.group) * 16 + lane
            place = second + number * struct.calcsize(form)
            (added,) = struct.unpack_from(form, data, place)
        if w.encoding in (19, 23):
            code = data[offset + ((tile * (cols // 4) + col // 4) * 16 + lane) * 4 + col % 4]
            return float((code - 128) * scale + added)
        byte = data[offset + ((tile * (cols // 8) + col // 8) * 16 + lane) * 4 + col % 4]
        nibble = byte >> 4 if col % 8 >= 4 else byte & 15
        if w.encoding == 20:
            scale *= struct.unpack_from("<f", data, second + row * 4)[0]
        return float((nibble - (0 if w.encoding == 21 else 8)) * scale + added)

    return np.array([[element(r, c) for c in range(cols)] for r in range(rows)], np.float32)


def test_tiles(tmp_path: Path) -> None:
    program, model = _program(tmp_path), good_model()
    for name in (n for n, shape in SHAPES.items() if len(shape) == 2):
        ours = _decode(model, model.weight(name))
        np.testing.assert_array_equal(program.weight(name), ours, err_msg=name)
        kind = "_".join(ENCODINGS[name].kind.split("_")[:2])
        usual = {"matrix_q4": 7, "matrix_q5": 14, "matrix_q6": 28, "matrix_q8": 120}
        steps = {**usual, "matrix_lpbq4": 7}.get(kind, 2000)
        allowed = np.abs(WEIGHTS[name]).max() / steps
        assert np.abs(ours - WEIGHTS[name]).max() <= allowed, name


def test_methods(tmp_path: Path) -> None:
    program, model = _program(tmp_path), good_model()
    states = [(s["name"], s["dtype"], s["shape"]) for s in program.states]
    assert states == [(s.name, fm.DTYPES[s.dtype], s.shape) for s in model.states]
    for theirs, ours in zip(program.methods, model.methods, strict=True):
        assert theirs["name"] == ours.name and theirs["nodes"] == len(ours.nodes)
        assert theirs["arena_bytes"] == ours.arena
        for group, ids in (("inputs", ours.inputs), ("outputs", ours.outputs)):
            for value, number in zip(theirs[group], ids, strict=True):
                own = ours.values[number]
                shape = [ours.symbols[-1 - d] if d < 0 else d for d in own.shape]
                assert (value["name"], value["dtype"]) == (own.name, fm.DTYPES[own.dtype])
                assert value["shape"] == shape
        counted: dict[str, int] = {}
        for node in ours.nodes:
            counted[node.op] = counted.get(node.op, 0) + 1
        assert theirs["ops"] == counted


def test_the_spec_has_the_numbers_of_the_code() -> None:
    text = SPEC.read_text()
    for name, code in KINDS.items():
        assert f"{code} `{name}`" in text, name
    for section in writer_format.Section:
        assert f"{section.value} `{section.name}`" in text
    for code, dtype in enumerate(fm.DTYPES):
        assert f"{code} `{dtype}`" in text
    assert str(writer_format.MAX_GROUP) in text


def test_the_spec_fits_on_two_pages() -> None:
    """About 60 lines of 100 characters on a printed page."""
    lines = SPEC.read_text().splitlines()
    printed = sum(max(1, -(-len(line) // 100)) for line in lines if line.strip())
    assert printed <= 120, printed
