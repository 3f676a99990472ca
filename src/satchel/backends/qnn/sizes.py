"""What compiling for the NPU and running on it takes, told before any of it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from satchel.backends.qnn.annotate import CACHE_BITS, is_cache
from satchel.backends.qnn.feeds import MEASURED_AT_ONCE
from satchel.backends.qnn.row_parts import RowPart
from satchel.backends.qnn.shards import NodeSize
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Graph, Node

# Measured with benchmarks/npu_compile.py and npu_heads.py; docs/qnn.md has the figures.
_BINARY_PER_BYTE = 1.02
_BINARY_PER_NODE = 4_500
MEMORY_BASE = 350_000_000  # of it, some 150 MB to run a token when it is compiled
# Of a byte of weights: two weights of 4 bits, one of 8, or half a float.
_MEMORY_PER_BYTE = {"matrix_q8": 7.5, "matrix_f16": 6.0}
_MEMORY_PER_OTHER = 11.2
_MEMORY_PER_NODE = 250_000
_REFERENCE_PER_BYTE = 1.8
# Of a module, which is one method; measured with benchmarks/paper_exports.py.
_MODULE_BASE = 130_000_000
_MODULE_PER_BYTE = 2.2
_MODULE_PER_NODE = 1_100_000
_MEASURING_PER_VALUE = 1.5  # of the bytes of all its values as floats
_MEASURING_MOST = int(4.3 * MEASURED_AT_ONCE)  # it is done in pieces
# Of a module's floats, which are released before: packed ones are mapped, half as large, and the
# rest is what measuring leaves behind.
_RELEASED = 0.3
_SECONDS_PER_NODE = 0.008
_SECONDS_PER_BYTE = 150e-9


@dataclass(frozen=True)
class ShardEstimate:
    """One shard: the bytes of its weights, of its binaries, and what compiling it takes."""

    weight_bytes: int
    binary_bytes: int
    context_bytes: int  # what it takes on the chip
    seconds: float
    peak_memory: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "weight_bytes": self.weight_bytes,
            "binary_bytes": self.binary_bytes,
            "context_bytes": self.context_bytes,
            "compile_seconds": round(self.seconds, 1),
            "compile_memory_bytes": self.peak_memory,
        }


def weight_bytes(sizes: Mapping[str, int]) -> NodeSize:
    """How many bytes of weights a node brings into a binary, from those of each weight."""

    def size(node: Node) -> int:
        parts = [RowPart.named(v.weight.name) for v in node.inputs if v is not None and v.weight]
        return sum(sizes.get(part.weight, 0) // part.count for part in parts)

    return size


def compile_memory(
    sizes: Mapping[str, int], encodings: Mapping[str, Encoding], methods: int
) -> NodeSize:
    """What compiling a node takes beside what every compiler's process does, with all methods."""
    weights = weight_bytes({name: _compiling(encodings, name, of) for name, of in sizes.items()})
    return lambda node: weights(node) + methods * _MEMORY_PER_NODE


def _compiling(encodings: Mapping[str, Encoding], name: str, size: int) -> int:
    kind = encodings[name].kind if name in encodings else ""
    return int(size * _MEMORY_PER_BYTE.get(kind, _MEMORY_PER_OTHER))


def largest_layer(encoding: Encoding, memory: int) -> int:
    """How many bytes of weights a layer may have that is compiled within so much memory."""
    return int(memory / _MEMORY_PER_BYTE.get(encoding.kind, _MEMORY_PER_OTHER))


def context_bytes(piece: Graph, size: NodeSize, cache_bits: int = CACHE_BITS) -> int:
    """What a shard takes on the chip: weights, the cache, and what goes in and out."""
    passed = [*piece.inputs, *piece.outputs]
    widths = [cache_bits if is_cache(v.name) else 16 for v in passed]
    buffers = sum(v.type.max_bytes * bits // 32 for v, bits in zip(passed, widths, strict=True))
    return sum(size(node) for node in piece.nodes) + buffers


def reference_memory(piece: Graph) -> int:
    """What the reference takes for the largest layer of a shard: as floats, some three times."""
    weights = [n.inputs[1] for n in piece.nodes if n.op == "linear"]
    largest = max((v.type.max_bytes for v in weights if v is not None), default=0)
    return int(largest * _REFERENCE_PER_BYTE)


def measuring_memory(graph: Graph, floats: int) -> int:
    """What measuring a module takes, beside its own weights, which were released before: ranges
    in pieces, and then the whole of it as floats."""
    values = sum(v.type.max_bytes for node in graph.nodes for v in node.outputs)
    ranges = min(floats + int(values * _MEASURING_PER_VALUE), _MEASURING_MOST)
    return max(0, ranges - floats, int(floats * _RELEASED))


def released_memory(floats: int) -> int:
    """What of a module's own weights the process has no more while it is compiled."""
    return int(floats * _RELEASED)


def estimate_module(piece: Graph, size: NodeSize) -> ShardEstimate:
    """A module's one shard."""
    weights, nodes = sum(size(node) for node in piece.nodes), len(piece.nodes)
    memory = _MODULE_BASE + int(weights * _MODULE_PER_BYTE) + nodes * _MODULE_PER_NODE
    return replace(estimate(piece, size, 1, 1), peak_memory=memory)


def estimate(
    piece: Graph,
    size: NodeSize,
    methods: int,
    copies: int,
    cache_bits: int = CACHE_BITS,
    memory: NodeSize | None = None,
) -> ShardEstimate:
    """``copies`` of the weights are in the binaries: one if the methods share them. ``memory`` is
    what compiling each node takes, if more than the bytes of its weights tells that."""
    weights = sum(size(node) for node in piece.nodes)
    nodes = len(piece.nodes) * methods
    if memory is None:
        taken = int(weights * _MEMORY_PER_OTHER) + nodes * _MEMORY_PER_NODE
    else:
        taken = sum(memory(node) for node in piece.nodes)
    return ShardEstimate(
        weights,
        int(weights * copies * _BINARY_PER_BYTE) + nodes * _BINARY_PER_NODE,
        context_bytes(piece, size, cache_bits),
        nodes * _SECONDS_PER_NODE + weights * methods * _SECONDS_PER_BYTE,
        MEMORY_BASE + taken,
    )
