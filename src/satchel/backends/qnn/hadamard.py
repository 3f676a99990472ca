"""The Hadamard transform as layers: online rotations, which the NPU has no op for.

A block of 8,192 is two layers, of 64 and of 128 columns: the matrix of a product of sizes is the
Kronecker product of theirs. Its entries are all one number or its negative, so that codes of 8 bits
stand for them exactly.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import RowSource, TensorType, Value, Weight
from satchel.quantize.rotation.matrices import hadamard

Array = NDArray[Any]
_NAME = re.compile(r"hadamard\.(\d+)")
_MOST_BITS = 7  # of the size of one layer
_LARGEST = 127  # with codes of 1 and -1 the chip's sums are coarse


def layer_sizes(block: int) -> list[int]:
    """The sizes of the layers whose product is the block, a power of two.

    >>> layer_sizes(64), layer_sizes(8192), layer_sizes(1)
    ([64], [64, 128], [])
    """
    bits = block.bit_length() - 1
    count = -(-bits // _MOST_BITS)
    return [1 << (bits * (i + 1) // count - bits * i // count) for i in range(count)]


def hadamard_weight(size: int) -> Value:
    """The matrix as a layer's weight, which no file holds: its name tells its numbers."""
    name = f"hadamard.{size}"
    shape = (size, size)
    weight = Weight(name, shape, "linear", RowSource(name))
    return Value(name, TensorType(shape), weight=weight)


def hadamard_codes(name: str) -> tuple[Array, Array] | None:
    """Codes [size, size] and scales [size, 1] of the weight of this name; None if it is another.

    >>> codes, scales = hadamard_codes("hadamard.4")
    >>> codes[1].tolist(), round(127 * float(scales[1, 0]), 6), hadamard_codes("model.norm.weight")
    ([127, -127, 127, -127], 0.5, None)
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    size = int(found[1])
    matrix = hadamard(size)
    assert matrix is not None
    scale = size**-0.5 / _LARGEST
    return (_LARGEST * matrix).astype(np.int8), np.full((size, 1), scale, np.float32)
