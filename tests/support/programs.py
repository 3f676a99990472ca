"""Writes small programs from graphs, with weights given as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings import packing
from satchel.encodings.encoding import PLAIN, Encoding
from satchel.graph.ir import Graph, Weight
from satchel.program.writer import ProgramWriter

Array = NDArray[Any]


def encode_array(array: Array, encoding: Encoding) -> list[bytes]:
    """An array's stored bytes: codes, and scales if the encoding has them."""
    if not encoding.is_matrix:
        return [array.astype(PLAIN[encoding.kind]).tobytes()]
    kind = encoding.kind.removeprefix("matrix_")
    codes, scales = packing.pack_matrix(kind, array, encoding.group)
    return [codes.tobytes(), scales.tobytes()] if encoding.is_quantized else [codes.tobytes()]


def stored_values(array: Array, encoding: Encoding) -> Array:
    """The numbers that a program computes with after storing this array."""
    codes, *scales = (np.frombuffer(b, np.uint8) for b in encode_array(array, encoding))
    return encoding.decode(codes, scales[0] if scales else np.zeros(0, np.uint8), array.shape)


def write_program(
    path: Path,
    graphs: Sequence[Graph],
    weights: Mapping[str, Array] | None = None,
    encodings: Mapping[str, Encoding] | None = None,
) -> Path:
    """A program of these graphs. Weights are matrices of f32 or plain vectors unless told."""
    arrays = dict(weights or {})
    kinds = {
        name: Encoding("matrix_f32" if array.ndim == 2 else "f32") for name, array in arrays.items()
    } | dict(encodings or {})

    def encode(weight: Weight, encoding: Encoding) -> Iterator[bytes]:
        yield from encode_array(arrays[weight.name], encoding)

    ProgramWriter(graphs, kinds).write(path, encode, lambda: {"kind": "test"})
    return path
