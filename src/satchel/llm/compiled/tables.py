"""Hash tables and tries that are looked up where they lie in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

EMPTY = 0xFFFFFFFF
_FNV_START, _FNV_FACTOR = 0xCBF29CE484222325, 0x100000001B3
_PAIR_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_LOAD = 1.35  # slots for each entry


def text_hashes(texts: Sequence[bytes]) -> NDArray[np.uint64]:
    """FNV-1a, of 64 bits, folded.

    >>> a, b = text_hashes([b"a", b"b"])
    >>> bool(a == b)
    False
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.cumsum(lengths) - lengths
    every = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint64)
    values: NDArray[np.uint64] = np.full(len(texts), _FNV_START, np.uint64)
    left = np.flatnonzero(lengths)
    at = 0
    while left.size:  # all texts' bytes at one place after the other
        values[left] = (values[left] ^ every[starts[left] + at]) * np.uint64(_FNV_FACTOR)
        at += 1
        left = left[lengths[left] > at]
    values ^= values >> np.uint64(32)
    return values


def _place(hashes: NDArray[np.uint64], slots: int) -> NDArray[np.int64]:
    """A slot for each, at or behind the one of its hash, with no empty slot in between."""
    at: NDArray[np.int64] = (hashes % np.uint64(slots)).astype(np.int64)
    taken = np.zeros(slots, bool)
    waiting = np.arange(len(hashes))
    while waiting.size:
        free = waiting[~taken[at[waiting]]]
        _, first = np.unique(at[free], return_index=True)
        placed = free[first]
        taken[at[placed]] = True
        mask = np.ones(len(hashes), bool)
        mask[placed] = False
        waiting = waiting[mask[waiting]]
        at[waiting] = (at[waiting] + 1) % slots
    return at


def text_table(keys: Sequence[bytes], values: Sequence[int]) -> NDArray[np.uint32]:
    """Where a text's number is: slots of numbers, EMPTY where there is none."""
    slots = int(len(keys) * _LOAD) + 1
    table = np.full(slots, EMPTY, np.uint32)
    if len(keys):
        table[_place(text_hashes(keys), slots)] = np.asarray(values, np.uint32)
    return table


def pair_table(pairs: NDArray[np.uint32], ranks: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """[slots, 4]: left, right, rank, and what they become; ``pairs`` is [n, 3]."""
    slots = int(len(pairs) * _LOAD) + 1
    table = np.full((slots, 4), EMPTY, np.uint32)
    if len(pairs):
        with np.errstate(over="ignore"):
            hashes = pairs[:, 0].astype(np.uint64) * np.uint64(_PAIR_FACTORS[0])
            hashes += pairs[:, 1].astype(np.uint64) * np.uint64(_PAIR_FACTORS[1])
            hashes ^= hashes >> np.uint64(32)
        columns = (pairs[:, 0], pairs[:, 1], ranks, pairs[:, 2])
        table[_place(hashes, slots)] = np.stack(columns, axis=1)
    return table


def trie(words: Mapping[bytes, int]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Nodes [n, 2] (first edge, value or EMPTY; one more at the end) and edges [m, 2] (byte, node).

    The edges of a node go by their bytes; node 0 is the beginning.
    """
    ordered = sorted(words)
    nodes: list[int] = []
    edges: list[tuple[int, int]] = []
    # Breadth first: a node is the words [first, last) that agree in `depth` bytes.
    level: list[tuple[int, int]] = [(0, len(ordered))]
    depth, made = 0, 1
    while level:
        following: list[tuple[int, int]] = []
        for first, last in level:
            value = EMPTY
            if first < last and len(ordered[first]) == depth:
                value = words[ordered[first]]
                first += 1  # noqa: PLW2901, the word itself has no further byte
            nodes += [len(edges), value]
            while first < last:
                byte = ordered[first][depth]
                end = first
                while end < last and ordered[end][depth] == byte:
                    end += 1
                edges.append((byte, made))
                made += 1
                following.append((first, end))
                first = end  # noqa: PLW2901
        level, depth = following, depth + 1
    nodes += [len(edges), EMPTY]
    return (
        np.array(nodes, np.uint32).reshape(-1, 2),
        np.array(edges, np.uint32).reshape(-1, 2),
    )
