"""Weights and tables of an ML program: what the builder is shown of them, and their bytes.

The builder is given arrays that hold one number in all places, so that it can check types and
shapes; the bytes are made when the file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from coremltools.converters.mil import Builder as Mil
from coremltools.converters.mil.mil import types
from numpy.typing import NDArray

from satchel.backends.coreml import blobs
from satchel.backends.coreml.blobs import BlobFile
from satchel.backends.coreml.palettes import COLOURS, ROWS, palette_rows
from satchel.backends.weight_rows import (
    Bytes,
    byte_rows,
    float_rows,
    nibble_rows,
    plain_bytes,
    scale_rows,
    some_rows,
    vector_bytes,
)
from satchel.encodings.encoding import Encoding
from satchel.quantize.static import quantize_rows
from satchel.runtime.program import Program

Array = NDArray[Any]
_KINDS = {np.dtype(np.float16): blobs.FLOAT16, np.dtype(np.int32): blobs.INT32}


class Constants:
    """Of all functions of a package; a name is stored once."""

    def __init__(
        self,
        encodings: Mapping[str, Encoding],
        newest: bool,
        eight_bits: bool = False,
        palettes: bool = False,
    ) -> None:
        self._encodings = encodings
        self._newest = newest  # iOS 18: blocks of weights with scales of their own
        self._eight_bits = eight_bits  # of kernels, a scale for each output
        self._palettes = palettes
        self.file = BlobFile()

    def _const(self, key: str, shape: tuple[int, ...], dtype: Any, kind: int, data: Bytes) -> Any:
        """A constant whose bytes are made later."""
        self.file.add(key, kind, data)
        shown = np.broadcast_to(np.zeros((), dtype), shape)
        made = Mil.const(val=shown)
        made.op.weight_id = key
        return made

    def array(self, key: str, array: Array) -> Any:
        """Numbers that are known."""
        kind = _KINDS[array.dtype]
        return self._const(key, array.shape, array.dtype, kind, plain_bytes(array))

    def zeros(self, count: int) -> Any:
        return self.array(f"zeros.{count}", np.zeros(count, np.float16))

    def vector(self, name: str, shape: tuple[int, ...]) -> Any:
        """A weight of one dimension, in 16 bits."""
        data = vector_bytes(name, int(np.prod(shape)), np.float16)
        return self._const(name, shape, np.float16, blobs.FLOAT16, data)

    def matrix(
        self,
        name: str,
        shape: tuple[int, int],
        part: tuple[int, int] | None = None,
        more: tuple[int, ...] = (),
        table: bool = False,
    ) -> Any:
        """A matrix, or some of its rows, with dimensions of 1 behind it."""
        encoding, (rows, cols) = self._encodings[name], shape
        first, last = part or (0, rows)
        key = name if part is None else f"{name}[{first}:{last}]"
        size = (last - first, cols, *more)
        if not encoding.is_quantized and self._palettes:
            return self._in_palettes(name, shape, part, key, more)
        if not encoding.is_quantized:
            data = some_rows(float_rows(name, shape, np.float16), part, 2 * cols)
            return self._const(key, size, np.float16, blobs.FLOAT16, data)
        groups = cols // encoding.group
        scales = some_rows(scale_rows(name, shape, encoding.group, "float16"), part, 2 * groups)
        if encoding.kind == "matrix_q4":
            codes = some_rows(nibble_rows(name, shape, signed=True), part, cols // 2)
            stored = self._const(key, size, types.np_int4_dtype, blobs.INT4, codes)
        else:
            codes = some_rows(byte_rows(name, shape), part, cols)
            stored = self._const(key, size, np.int8, blobs.INT8, codes)
        if self._newest:
            kept = (last - first, groups, *more)
            scale = self._const(f"{key}#scales", kept, np.float16, blobs.FLOAT16, scales)
            return Mil.constexpr_blockwise_shift_scale(data=stored, scale=scale)
        scale = self._const(f"{key}#scales", (last - first,), np.float16, blobs.FLOAT16, scales)
        return Mil.constexpr_affine_dequantize(
            quantized_data=stored, zero_point=np.int8(0), scale=scale, axis=0
        )

    def _in_palettes(
        self,
        name: str,
        shape: tuple[int, int],
        part: tuple[int, int] | None,
        key: str,
        more: tuple[int, ...],
    ) -> Any:
        rows, cols = shape
        first, last = part or (0, rows)
        indices, tables = palette_rows(name, shape)
        indices = some_rows(indices, part, cols // 2)
        blocks = (first // ROWS, last // ROWS)
        tables = some_rows(tables, None if part is None else blocks, 2 * COLOURS)
        size = (last - first, cols, *more)
        stored = self._const(key, size, types.np_uint4_dtype, blobs.UINT4, indices)
        many = (blocks[1] - blocks[0], 1, *more, COLOURS, 1)
        table = self._const(f"{key}#palettes", many, np.float16, blobs.FLOAT16, tables)
        return Mil.constexpr_lut_to_dense(indices=stored, lut=table)

    def kernel(self, name: str, shape: tuple[int, ...]) -> Any:
        """A layer of a module, [outputs, inputs] or [outputs, channels, rows, columns]."""
        count = int(np.prod(shape))
        if not self._eight_bits:
            data = _made(2 * count, lambda p: [_kernel(p, name, shape).astype(np.float16)])
            return self._const(f"{name}#kernel", shape, np.float16, blobs.FLOAT16, data)
        codes = _made(count, lambda p: [quantize_rows(_kernel(p, name, shape, flat=True))[0]])
        scales = _made(
            2 * shape[0],
            lambda p: [quantize_rows(_kernel(p, name, shape, flat=True))[1].astype(np.float16)],
        )
        stored = self._const(f"{name}#kernel", shape, np.int8, blobs.INT8, codes)
        if self._newest:
            ones = (1,) * (len(shape) - 1)
            kept = (shape[0], *ones)
            scale = self._const(f"{name}#scales", kept, np.float16, blobs.FLOAT16, scales)
            return Mil.constexpr_blockwise_shift_scale(data=stored, scale=scale)
        scale = self._const(f"{name}#scales", shape[:1], np.float16, blobs.FLOAT16, scales)
        return Mil.constexpr_affine_dequantize(
            quantized_data=stored, zero_point=np.int8(0), scale=scale, axis=0
        )


def _made(size: int, make: Callable[[Program], list[Array]]) -> Bytes:
    def blocks(program: Program | None) -> Iterator[bytes]:
        assert program is not None
        yield from (np.ascontiguousarray(array).tobytes() for array in make(program))

    return Bytes(size, blocks)


def _kernel(program: Program, name: str, shape: tuple[int, ...], flat: bool = False) -> Array:
    """A layer's numbers with channels before rows and columns."""
    array: Array = program.weight(name).astype(np.float32)
    if len(shape) == 4:
        outputs, channels, rows, columns = shape
        array = array.reshape(outputs, rows, columns, channels).transpose(0, 3, 1, 2)
    return array.reshape(shape[0], -1) if flat else array
