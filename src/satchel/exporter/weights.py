"""Turns checkpoint tensors into stored bytes, one block of rows at a time.

Peak memory depends on the block, not on the tensor or on the number of layers. The next block
is read while this one is packed, so that reading and packing overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.checkpoints.base import Checkpoint
from satchel.errors import CheckpointError
from satchel.graph.ir import RowSource, Weight
from satchel.quantize.encoding import Encoding
from satchel.quantize.packing import PLANE_ALIGNMENT, split_planes

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
    errors: dict[str, WeightError] = field(default_factory=dict)  # by weight

    def encode(self, weight: Weight, encoding: Encoding) -> Iterator[bytes | memoryview]:
        """All codes, then all scales."""
        if not encoding.is_matrix:
            array = self._read(weight.source, 0, weight.shape[0])
            self._check_finite(weight, array, 0)
            yield array.astype(np.float16 if encoding.kind == "f16" else np.float32).tobytes()
            return
        total = self.errors.setdefault(weight.name, WeightError())
        planes: list[list[NDArray[np.uint8]]] = []  # of the scales, by block of rows
        for start, block in self._blocks(weight):
            kind, group = encoding.layout, encoding.group
            codes, scales, stats = _native.kernels.pack(block, kind, group, threads=self.threads)
            if stats["first_bad"] >= 0:
                self._check_finite(weight, block, start)
                raise CheckpointError(
                    f"{weight.source.tensor} has weights too large for a 16-bit scale",
                    "Use the recipe fp32.",
                )
            total.squared_error += stats["squared_error"]
            total.squared_weight += stats["squared_weight"]
            total.count += block.size
            if encoding.is_quantized:
                rows, cols = block.shape
                planes.append(split_planes(kind, scales, rows, cols, group))
            yield codes.data
        for plane in zip(*planes, strict=True):
            yield from (part.data for part in plane)
            if plane[-1] is not planes[-1][-1]:  # the last one is not filled up
                yield bytes(-sum(part.size for part in plane) % PLANE_ALIGNMENT)

    def _blocks(self, weight: Weight) -> Iterator[tuple[int, NDArray[np.float32]]]:
        rows, cols = weight.shape
        step = max(TILE_ROWS, BLOCK_BYTES // (4 * cols) // TILE_ROWS * TILE_ROWS)
        starts = range(0, rows, step)
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._read, weight.source, 0, min(step, rows))
            for start in starts:
                block = ahead.result()
                if start + step < rows:
                    stop = min(start + 2 * step, rows)
                    ahead = reader.submit(self._read, weight.source, start + step, stop)
                yield start, block

    def _read(self, source: RowSource, start: int, stop: int) -> NDArray[np.float32]:
        """Rows start … stop-1 of a weight, wherever in the tensor they lie."""
        if source.interleaved:
            head, rotary = source.interleaved
            first = start // head * head  # a head's rows change places, so it is read as a whole
            block = self._read_ranges(source, first, -(-stop // head) * head)
            block = half_split(block, head, rotary)[start - first : stop - first]
        else:
            block = self._read_ranges(source, start, stop)
        return block + np.float32(source.add) if source.add else block

    def _read_ranges(self, source: RowSource, start: int, stop: int) -> NDArray[np.float32]:
        if source.ranges is None:
            return self.checkpoint.read(source.tensor, slice(start, stop))
        parts = []
        for first, last in source.ranges:
            begin, end = max(first, first + start), min(last, first + stop)
            if begin < end:
                parts.append(self.checkpoint.read(source.tensor, slice(begin, end)))
            start, stop = start - (last - first), stop - (last - first)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    @staticmethod
    def _check_finite(weight: Weight, block: NDArray[np.float32], start: int) -> None:
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            place = [int(i) for i in bad[0]]
            place[0] += start
            raise CheckpointError(
                f"{weight.source.tensor} holds {block[tuple(bad[0])]} at {place}",
                "The checkpoint is damaged; fetch it again.",
            )


def half_split(rows: NDArray[np.float32], head: int, rotary: int) -> NDArray[np.float32]:
    """The first ``rotary`` rows of each head from x0 y0 x1 y1 … to x0 x1 … y0 y1 …"""
    order = np.arange(head)
    order[:rotary] = order[:rotary].reshape(-1, 2).T.reshape(-1)
    split: NDArray[np.float32] = rows.reshape(-1, head, *rows.shape[1:])[:, order]
    return split.reshape(rows.shape)
