"""Feeds tokens to the NPU's graphs and keeps the KV cache: what the host does.

The cache is updated in place (the smart mask): after a call only the new tokens' slots are
written, and the mask of the next call uncovers them. Nothing is moved or copied otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import Encodings
from satchel.backends.qnn.lower import Lowered, MaskInput
from satchel.errors import ExecutionError
from satchel.graph.ir import Graph, Weight, largest
from satchel.graph.ops.attention import tree_depths
from satchel.graph.ops.registry import check_rows
from satchel.graph.reference import ReferenceInterpreter
from satchel.llm.session import KV_METHOD, LOOKAHEAD_METHOD
from satchel.quantize.static import ActivationEncoding

Array = NDArray[Any]
# Runs one piece of a method: its number, the method's name, codes in, codes out.
Execute = Callable[[int, str, Mapping[str, Array]], dict[str, Array]]
Rows = Callable[[str, Array], Array]  # rows of a weight, by number


@dataclass
class ShardedMethod:
    """A lowered method with the pieces that its graph was split into."""

    lowered: Lowered
    pieces: list[Graph]


class Host:
    """What a method needs besides its caches and masks: embeddings, sines and cosines."""

    def __init__(self, rows: Rows, array: Callable[[str], Array]) -> None:
        def read(weight: Weight) -> Array:
            return array(weight.name)

        self._rows = rows
        self._interpreter = ReferenceInterpreter(read)

    def inputs(
        self, method: Lowered, tokens: Array, position: int, parents: Array | None = None
    ) -> dict[str, Array]:
        """The NPU's inputs for a block of exactly the method's length."""
        made = {name: self._rows(table, tokens) for name, table in method.embeddings.items()}
        given = {"tokens": tokens, "position": np.array([position], np.int32)}
        if method.takes_trees:
            given["parents"] = _line(method.tokens) if parents is None else parents
        return made | self._interpreter.run(method.host, given)


def _line(tokens: int) -> Array:
    """Each token stands behind the one before it."""
    return np.arange(-1, tokens - 1, dtype=np.int32)


def visible_slots(
    mask: MaskInput, tokens: int, context: int, position: int, parents: Array | None = None
) -> Array:
    """Which slots each token sees, [tokens, context + tokens]: old ones, then new ones.

    Of the new ones a token sees itself and its ancestors, which are all before it in a line.
    """
    parents = _line(tokens) if parents is None else parents
    depths = position + tree_depths(parents)
    queries = depths[:, None]
    slots = np.concatenate([np.arange(context), depths])[None]
    seen: Array = np.repeat(slots < position, tokens, axis=0)
    seen[:, context:] = False
    for i, parent in enumerate(parents.tolist()):
        if parent >= 0:
            seen[i, context:] = seen[parent, context:]
        seen[i, context + i] = True
    if mask.window:
        seen &= slots > queries - mask.window
    return seen


def mask_codes(
    encoding: ActivationEncoding,
    mask: MaskInput,
    method: Lowered,
    position: int,
    parents: Array | None = None,
) -> Array:
    """Zero for what is seen, and the lowest number for what is not."""
    seen = visible_slots(mask, method.tokens, method.context, position, parents)
    return np.where(seen, encoding.zero_point, encoding.lowest).astype(encoding.dtype)


class SmartMaskRunner:
    """Methods that share one KV cache, over anything that can execute their pieces."""

    def __init__(
        self,
        methods: Mapping[str, ShardedMethod],
        encodings: Encodings,
        host: Host,
        vocabulary: int,
        execute: Execute,
    ) -> None:
        self.methods, self._encodings, self._host = methods, encodings, host
        self._vocabulary, self._execute = vocabulary, execute
        self.caches: dict[str, Array] = {}
        for method in methods.values():
            for piece in method.pieces:
                for value in piece.inputs:
                    if any(value.name == c.name for c in method.lowered.caches):
                        encoding = encodings[value.name]
                        self.caches.setdefault(
                            value.name,
                            np.full(largest(value.shape), encoding.zero_point, encoding.dtype),
                        )

    def run(
        self,
        name: str,
        tokens: Array,
        position: int,
        rows: Array | None = None,
        parents: Array | None = None,
    ) -> Array:
        """The logits after the tokens that ``rows`` names, or after all.

        With ``parents`` the tokens are a tree; they go into the cache in their order, and
        :meth:`keep` leaves those that are to stay. Where there is a method for trees, it also
        does single tokens: both are then the same computation.
        """
        if name not in self.methods and name == KV_METHOD:
            name = LOOKAHEAD_METHOD
        method = self.methods[name]
        lowered, count = method.lowered, len(tokens)
        if not 1 <= count <= lowered.tokens:
            raise ExecutionError(f"{name} takes 1 to {lowered.tokens} tokens, not {count}")
        if position < 0 or position + count > lowered.context:
            last = position + count - 1
            raise ExecutionError(
                f"the tokens {position} to {last} do not fit in a context of {lowered.context}"
            )
        check_rows(tokens, self._vocabulary, "token")
        rows = np.arange(count) if rows is None else rows
        check_rows(rows, count, "row")
        padded = np.zeros(lowered.tokens, np.int32)  # what follows the tokens is never seen
        padded[:count] = tokens
        whole = _line(lowered.tokens)
        if parents is not None:
            if len(parents) != count or not lowered.takes_trees:
                raise ExecutionError(f"{name} takes no tree of {len(parents)} for {count} tokens")
            whole[:count] = parents
            whole[count:] = -1
        numbers = self._host.inputs(lowered, padded, position, whole)
        codes = {key: self._encodings[key].quantize(array) for key, array in numbers.items()}
        for mask in lowered.masks:
            encoding = self._encodings[mask.name]
            codes[mask.name] = mask_codes(encoding, mask, lowered, position, whole)
        codes |= self.caches
        for number, piece in enumerate(method.pieces):
            codes |= self._execute(number, name, {v.name: codes[v.name] for v in piece.inputs})
        self._write(lowered, codes, position, count)
        chosen: Array = self._encodings["logits"].dequantize(codes["logits"][rows])
        return chosen

    def keep(self, rows: Array, position: int) -> None:
        """Move what some of the last tokens put into the cache together."""
        check_rows(rows, self.methods[LOOKAHEAD_METHOD].lowered.tokens, "row")
        if (np.diff(rows) < 1).any():
            raise ExecutionError("the rows that are kept must rise")
        for cache in self.methods[LOOKAHEAD_METHOD].lowered.caches:
            slots = np.moveaxis(self.caches[cache.name], cache.axis, 0)
            if position < 0 or position + int(rows.max(initial=0)) >= len(slots):
                raise ExecutionError(f"the tokens at {position} are not in the cache")
            slots[position : position + len(rows)] = slots[position + rows]

    def _write(
        self, method: Lowered, codes: Mapping[str, Array], position: int, count: int
    ) -> None:
        for cache in method.caches:
            span = slice(position, position + count)
            if cache.axis == 2:
                self.caches[cache.name][:, :, span] = codes[cache.new][:, :, :count]
            else:
                self.caches[cache.name][:, span] = codes[cache.new][:, :count]
