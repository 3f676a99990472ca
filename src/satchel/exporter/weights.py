"""Turns checkpoint tensors into stored bytes, one block of rows at a time.

Peak memory depends on the block, not on the tensor or on the number of layers. The next block
is read while this one is packed, so that reading and packing overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.checkpoints.base import Checkpoint
from satchel.encodings.encoding import Encoding
from satchel.encodings.packing import pack_quantized, split_planes
from satchel.encodings.tiles import PLANE_ALIGNMENT
from satchel.errors import CheckpointError
from satchel.graph.ir import RowSource, Weight
from satchel.quantize.affine import OFFSETS, QuantizedWeight
from satchel.quantize.rounding import Rounder
from satchel.quantize.superblocks import SuperblockWeight

Array = NDArray[Any]
# Rows of a source's tensor: floats, or codes, scales and what is added to groups.
ReadRows = Callable[[RowSource, slice], list[Array]]

BLOCK_BYTES = 8 << 20  # of float32
TILE_ROWS = 16


@dataclass
class WeightError:
    """How far the stored numbers are from the checkpoint's, summed over some weights."""

    squared_error: float = 0.0
    squared_weight: float = 0.0
    count: int = 0

    @property
    def relative(self) -> float:
        """Root of the mean squared error over that of the weights."""
        return (
            float(np.sqrt(self.squared_error / self.squared_weight)) if self.squared_weight else 0.0
        )


@dataclass
class WeightPacker:
    """Reads weights from a checkpoint and packs them."""

    checkpoint: Checkpoint
    threads: int
    pre_quantized: frozenset[str] = frozenset()  # weights that are taken as the checkpoint has them
    rounder: Rounder | None = None  # None: plain rounding, by the native core
    errors: dict[str, WeightError] = field(default_factory=dict)  # by weight

    def encode(self, weight: Weight, encoding: Encoding) -> Iterator[bytes | memoryview]:
        """All codes, then all scales."""
        if not encoding.is_matrix:
            array = self.rows(weight, 0, weight.shape[0])
            self._check_finite(weight, array, 0)
            yield array.astype(np.float16 if encoding.kind == "f16" else np.float32).tobytes()
            return
        pack = self._quantize
        if weight.name in self.pre_quantized:
            pack = self._keep
        elif self.rounder and self.rounder.applies(encoding):
            pack = self._round
        planes: list[list[NDArray[np.uint8]]] = []  # of the scales, by block of rows
        for rows, codes, scales in pack(weight, encoding):
            if encoding.is_quantized:
                cols, group = weight.shape[1], encoding.group
                planes.append(split_planes(encoding.layout, scales, rows, cols, group))
            yield codes.data
        yield from _whole_planes(planes)

    def _quantize(self, weight: Weight, encoding: Encoding) -> Iterator[tuple[int, Array, Array]]:
        """Blocks of rows rounded to an encoding: how many, their codes and their scales."""
        total = self.errors.setdefault(weight.name, WeightError())
        for start, (block,) in self._blocks(weight, self._floats):
            codes, scales, stats = _native.kernels.pack(
                block, encoding.layout, encoding.group, threads=self.threads
            )
            if stats["first_bad"] >= 0:
                self._check_finite(weight, block, start)
                if encoding.kind == "matrix_i8":
                    raise CheckpointError(
                        f"{weight.source.tensor} is not made of whole numbers from -127 to 127",
                        "Quantise it before it is stored.",
                    )
                raise _too_large(weight)
            total.squared_error += stats["squared_error"]
            total.squared_weight += stats["squared_weight"]
            total.count += block.size
            yield len(block), codes, scales

    def _round(self, weight: Weight, encoding: Encoding) -> Iterator[tuple[int, Array, Array]]:
        """The same with better rounding."""
        assert self.rounder
        total = self.errors.setdefault(weight.name, WeightError())
        for start, (block,) in self._blocks(weight, self._floats):
            self._check_finite(weight, block, start)
            rounded = self.rounder.round(weight.name, weight.role, block, encoding)
            if not rounded.finite:
                raise _too_large(weight)
            total.squared_error += _squares(rounded.floats() - block)
            total.squared_weight += _squares(block)
            total.count += block.size
            yield len(block), *rounded.packed()

    def _keep(self, weight: Weight, encoding: Encoding) -> Iterator[tuple[int, Array, Array]]:
        """The same of rows that are quantised in the checkpoint, as they are."""
        total = self.errors.setdefault(weight.name, WeightError())
        own = self.checkpoint.tensors[weight.source.tensor].own_encoding
        for start, parts in self._blocks(weight, self._quantized):
            for part in parts[1:]:
                self._check_finite(weight, part, start)
            total.count += parts[0].size
            if encoding.has_superblocks:
                yield len(parts[0]), *pack_quantized(encoding.layout, SuperblockWeight(*parts))
                continue
            exact = (
                SuperblockWeight(*parts).plain()
                if own and own.has_superblocks
                else QuantizedWeight(*parts)
            )
            codes, *numbers = exact.parts
            narrow: list[type[np.floating[Any]]] = [np.float16]
            narrow += [OFFSETS[encoding.layout]] if len(numbers) > 1 else []
            stored = QuantizedWeight(
                codes,
                *(
                    part if part.dtype == dtype else self._narrowed(weight, part, dtype)
                    for part, dtype in zip(numbers, narrow, strict=True)
                ),
            )
            if any(a.dtype != b.dtype for a, b in zip(stored.parts, exact.parts, strict=True)):
                _add_rounding_error(total, exact, stored)
            yield len(codes), *pack_quantized(encoding.layout, stored)

    @staticmethod
    def _narrowed(weight: Weight, numbers: Array, dtype: type[np.floating[Any]]) -> Array:
        """Scales or offsets of a checkpoint's groups in the bits that a program has for them."""
        with np.errstate(over="ignore"):
            narrowed: Array = numbers.astype(dtype)
        if not np.isfinite(narrowed).all():
            raise CheckpointError(
                f"{weight.source.tensor} has scales too large for 16 bits", "Use the recipe fp32."
            )
        return narrowed

    def rows(self, weight: Weight, start: int, stop: int) -> Array:
        """Rows start … stop-1 of a weight as they are in the checkpoint."""
        (array,) = _read(self._floats, weight.source, start, stop)
        return array

    def _floats(self, source: RowSource, rows: slice) -> list[Array]:
        block = self.checkpoint.read(source.tensor, rows)
        return [block + np.float32(source.add) if source.add else block]

    def _quantized(self, source: RowSource, rows: slice) -> list[Array]:
        return self.checkpoint.read_quantized(source.tensor, rows).parts

    def _blocks(self, weight: Weight, read: ReadRows) -> Iterator[tuple[int, list[Array]]]:
        rows, cols = weight.shape
        step = max(TILE_ROWS, BLOCK_BYTES // (4 * cols) // TILE_ROWS * TILE_ROWS)
        starts = range(0, rows, step)
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(_read, read, weight.source, 0, min(step, rows))
            for start in starts:
                block = ahead.result()
                if start + step < rows:
                    stop = min(start + 2 * step, rows)
                    ahead = reader.submit(_read, read, weight.source, start + step, stop)
                yield start, block

    @staticmethod
    def _check_finite(weight: Weight, block: Array, start: int) -> None:
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            place = [int(i) for i in bad[0]]
            place[0] += start
            raise CheckpointError(
                f"{weight.source.tensor} holds {block[tuple(bad[0])]} at {place}",
                "The checkpoint is damaged; fetch it again.",
            )


def _add_rounding_error(
    total: WeightError, exact: QuantizedWeight, stored: QuantizedWeight
) -> None:
    """What it costs that scales and minima are stored in 16 bits."""
    wanted = exact.floats()
    total.squared_error += _squares(stored.floats() - wanted)
    total.squared_weight += _squares(wanted)


def _squares(rows: Array) -> float:
    """The sum of all squares: of a row in 32 bits, of rows in 64; a wide copy would cost more than
    rounding."""
    return float(np.einsum("rc,rc->r", rows, rows).sum(dtype=np.float64))


def _too_large(weight: Weight) -> CheckpointError:
    return CheckpointError(
        f"{weight.source.tensor} has weights too large for a 16-bit scale", "Use the recipe fp32."
    )


def _whole_planes(planes: list[list[NDArray[np.uint8]]]) -> Iterator[bytes | memoryview]:
    """Every plane of all blocks, filled up to where the next one starts."""
    for plane in zip(*planes, strict=True):
        yield from (part.data for part in plane)
        if plane[-1] is not planes[-1][-1]:  # the last one is not filled up
            yield bytes(-sum(part.size for part in plane) % PLANE_ALIGNMENT)


def _read(read: ReadRows, source: RowSource, start: int, stop: int) -> list[Array]:
    """Rows start … stop-1 of a weight, wherever in the tensor they lie."""
    if not source.interleaved:
        return _read_ranges(read, source, start, stop)
    head, rotary = source.interleaved
    first = start // head * head  # a head's rows change places, so it is read as a whole
    parts = _read_ranges(read, source, first, -(-stop // head) * head)
    return [half_split(part, head, rotary)[start - first : stop - first] for part in parts]


def _read_ranges(read: ReadRows, source: RowSource, start: int, stop: int) -> list[Array]:
    if source.ranges is None:
        return read(source, slice(start, stop))
    found = []
    for first, last in source.ranges:
        begin, end = max(first, first + start), min(last, first + stop)
        if begin < end:
            found.append(read(source, slice(begin, end)))
        start, stop = start - (last - first), stop - (last - first)
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def half_split(rows: Array, head: int, rotary: int) -> Array:
    """The first ``rotary`` rows of each head from x0 y0 x1 y1 … to x0 x1 … y0 y1 …"""
    order = np.arange(head)
    order[:rotary] = order[:rotary].reshape(-1, 2).T.reshape(-1)
    split: Array = rows.reshape(-1, head, *rows.shape[1:])[:, order]
    return split.reshape(rows.shape)
