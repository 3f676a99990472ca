"""A program's weights as others read them: rows one after the other, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.tiles import TILE_ROWS, group_rows
from satchel.errors import ProgramFormatError
from satchel.runtime.program import Program

Array = NDArray[Any]
_BLOCK = 4 << 20  # bytes of quantized values that are transposed at once
_EVEN_NIBBLES = np.uint32(0x0F0F0F0F)


@dataclass(frozen=True)
class Bytes:
    """Bytes of the file: how many, and how they are made when they are written."""

    size: int
    make: Callable[[Program | None], Iterator[bytes | memoryview]]


def plain_bytes(array: Array) -> Bytes:
    """An array that is there already."""
    data = np.ascontiguousarray(array).tobytes()
    return Bytes(len(data), lambda _: iter([data]))


def vector_bytes(name: str, count: int, kind: type = np.float32) -> Bytes:
    """A weight that is stored as plain floats."""

    def make(program: Program | None) -> Iterator[bytes]:
        assert program is not None
        yield program.weight(name).astype(kind).tobytes()

    return Bytes(np.dtype(kind).itemsize * count, make)


def float_rows(name: str, shape: tuple[int, int], kind: type = np.float32) -> Bytes:
    """A matrix of floats, which are stored so."""
    (rows, cols), size = shape, np.dtype(kind).itemsize

    def make(program: Program | None) -> Iterator[memoryview]:
        for tiles in _tiles(program, name, size * cols * TILE_ROWS):
            columns: Array = tiles.view(kind).reshape(-1, cols, TILE_ROWS)
            yield _rows_of(columns.transpose(0, 2, 1))

    return Bytes(size * rows * cols, _cut(make, size * rows * cols))


def tiles_of_halves(program: Program | None, name: str, cols: int) -> Iterator[Array]:
    """A matrix of 16-bit floats, 16 rows at a time."""
    for tiles in _tiles(program, name, 2 * cols * TILE_ROWS):
        columns: Array = tiles.view(np.float16).reshape(-1, cols, TILE_ROWS)
        for tile in columns:
            yield tile.T


def byte_rows(name: str, shape: tuple[int, int]) -> Bytes:
    """Codes of 8 bits, signed."""
    rows, cols = shape

    def make(program: Program | None) -> Iterator[memoryview]:
        for tiles in _tiles(program, name, cols * TILE_ROWS):
            units = (tiles ^ np.uint8(0x80)).reshape(-1, cols // 4, TILE_ROWS, 4)
            yield _rows_of(units.transpose(0, 2, 1, 3))

    return Bytes(rows * cols, _cut(make, rows * cols))


def nibble_rows(
    name: str, shape: tuple[int, int], first_is_high: bool = False, signed: bool = False
) -> Bytes:
    """Codes of 4 bits, two columns in a byte: the first one is its lower half, or the upper one.

    They are from 0 to 15 where 8 is nothing, or signed.
    """
    rows, cols = shape

    def make(program: Program | None) -> Iterator[memoryview]:
        for tiles in _tiles(program, name, cols // 2 * TILE_ROWS):
            units = tiles.view(np.uint32).reshape(-1, cols // 8, TILE_ROWS)
            paired = _pairs(units & _EVEN_NIBBLES) | _pairs(units >> 4 & _EVEN_NIBBLES) << 16
            done: Array = np.ascontiguousarray(paired.transpose(0, 2, 1)).view(np.uint8)
            done = done << 4 | done >> 4 if first_is_high else done
            yield _rows_of(done ^ np.uint8(0x88) if signed else done)

    return Bytes(rows * cols // 2, _cut(make, rows * cols // 2))


def _pairs(codes: Array) -> Array:
    """Of four codes in four bytes, two and two in a byte, in the lower half of 32 bits."""
    joined = codes | codes >> 4
    result: Array = joined & np.uint32(0xFF) | joined >> 8 & np.uint32(0xFF00)
    return result


def scale_rows(name: str, shape: tuple[int, int], group: int, kind: str) -> Bytes:
    """The scales of all groups, row by row, as ``float32``, ``float16`` or ``bfloat16``.

    One that is 0 stands for weights that are all 0, and becomes one that can be divided by.
    """
    rows, groups = shape[0], shape[1] // group

    def make(program: Program | None) -> Iterator[memoryview]:
        for tiles in _tiles(program, name, 2 * groups * TILE_ROWS, "scales_"):
            halves = group_rows(tiles.view(np.float16), groups).astype(np.float32)
            scales = np.where(halves == 0, np.float32(2.0**-14), halves)
            if kind == "bfloat16":
                bits = np.ascontiguousarray(scales).view(np.uint32)
                assert not (bits & 0xFFFF).any()  # the recipe made them so
                yield _rows_of((bits >> 16).astype(np.uint16))
            else:
                yield _rows_of(scales.astype(kind))

    size = rows * groups * (4 if kind == "float32" else 2)
    return Bytes(size, _cut(make, size))


def some_rows(data: Bytes, rows: tuple[int, int] | None, row_bytes: int) -> Bytes:
    """Some of the rows of a matrix; all without any named.

    >>> list(some_rows(plain_bytes(np.arange(8, dtype=np.uint8)), (1, 3), 2).make(None))
    [b'\\x02\\x03\\x04\\x05']
    """
    if rows is None:
        return data
    first, last = (row * row_bytes for row in rows)

    def make(program: Program | None) -> Iterator[bytes | memoryview]:
        at = 0
        for block in data.make(program):
            kept = block[max(first - at, 0) : max(last - at, 0)]
            if len(kept):
                yield kept
            at += len(block)

    return Bytes(last - first, make)


def _cut(
    make: Callable[[Program | None], Iterator[memoryview]], size: int
) -> Callable[[Program | None], Iterator[memoryview]]:
    """Without what fills up the last tile."""

    def cut(program: Program | None) -> Iterator[memoryview]:
        left = size
        for block in make(program):
            yield block[: min(len(block), left)]
            left -= min(len(block), left)

    return cut


def _tiles(program: Program | None, name: str, tile_bytes: int, plane: str = "") -> Iterator[Array]:
    """Some of a weight's tiles after the other; ``plane`` is ``scales_`` for those of scales."""
    assert program is not None
    info = _record(program, name)
    offset, size = info[f"{plane}offset"], info[f"{plane}size" if plane else "codes_size"]
    step = max(1, _BLOCK // tile_bytes) * tile_bytes
    with program.path.open("rb") as file:
        for start in range(0, size, step):
            yield _read(file, offset + start, min(step, size - start))


def _record(program: Program, name: str) -> Mapping[str, Any]:
    return next(w for w in program.weights if w["name"] == name)


def _read(file: BinaryIO, offset: int, size: int) -> Array:
    file.seek(offset)
    data = np.frombuffer(file.read(size), np.uint8)
    if data.size != size:
        raise ProgramFormatError("the file ends too early", "", "weights", offset)
    return data


def _rows_of(tiles: Array) -> memoryview:
    return np.ascontiguousarray(tiles).reshape(-1).view(np.uint8).data
