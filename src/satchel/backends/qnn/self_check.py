"""Inputs for trying out a compiled shard, and what the reference makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.calibrate import Measured
from satchel.backends.qnn.lower import Lowered
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.reference_run import ReferenceGraph
from satchel.backends.qnn.runner import mask_codes
from satchel.backends.qnn.shards import cut_points, split
from satchel.graph.ir import Graph, largest

Array = NDArray[Any]


def first_inputs(
    prepared: PreparedProgram, method: Lowered, measured: Measured
) -> dict[str, Array]:
    """The codes of all inputs for the token that follows the first block of a real text."""
    encodings = prepared.encodings
    position = min(len(measured.tokens), method.context - method.tokens)
    tokens = np.full(method.tokens, measured.following, np.int32)
    numbers = prepared.host.inputs(method, tokens, position)
    codes = {name: encodings[name].quantize(array) for name, array in numbers.items()}
    for mask in method.masks:
        codes[mask.name] = mask_codes(encodings[mask.name], mask, method, position)
    shapes = {v.name: largest(v.shape) for v in method.npu.inputs}
    for cache in method.caches:
        encoding = encodings[cache.name]
        filled = np.full(shapes[cache.name], encoding.zero_point, encoding.dtype)
        known = encoding.quantize(measured.caches[cache.name])
        slots, given = np.moveaxis(filled, cache.axis, 0), np.moveaxis(known, cache.axis, 0)
        slots[:position] = given[:position]
        codes[cache.name] = filled
    return codes


def run_in_reference(
    prepared: PreparedProgram, piece: Graph, codes: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs of a shard, computed in the smallest parts to save memory."""
    known = dict(codes)
    for part in split(piece, cut_points(piece)):
        graph = ReferenceGraph(part, prepared.encodings, prepared.weights, prepared.bits)
        known |= graph.run({v.name: known[v.name] for v in part.inputs})
    return {v.name: known[v.name] for v in piece.outputs}


def cosine(first: Array, second: Array) -> float:
    """Between two arrays of numbers.

    >>> cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])).__round__(4)
    0.7071
    """
    a, b = (array.astype(np.float64).ravel() for array in (first, second))
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else float(np.array_equal(first, second))
