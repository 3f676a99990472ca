"""Measures the range of every value of the NPU's graph on some text, piece by piece.

All texts go through one piece before the next piece's weights are read, so that memory is that
of one piece and of the hidden states between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.annotate import Ranges, RangeWatcher
from satchel.backends.qnn.reference_run import weight_reader
from satchel.backends.qnn.runner import Host, ShardedMethod, visible_slots
from satchel.backends.qnn.stored import WeightStore
from satchel.errors import RecipeError
from satchel.graph.ir import largest
from satchel.graph.reference import ReferenceInterpreter

Array = NDArray[Any]
_HIDDEN = -1e9  # added to the scores of slots that are not seen


@dataclass
class Measured:
    """What a text gave: the range of every value, and a state to try a compiled method from."""

    ranges: Ranges
    tokens: Array  # the first block
    following: int  # the token after it
    caches: dict[str, Array]  # what the first block put into each cache


def measure_ranges(
    method: ShardedMethod,
    host: Host,
    weights: WeightStore,
    texts: Sequence[Array],
    bits: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Measured:
    """Run texts, which are tokens, in whole blocks; those that follow the last one are left."""
    lowered = method.lowered
    watcher = RangeWatcher({})
    blocks: list[tuple[int, dict[str, Array]]] = []  # position, and what is known of the values
    for text in texts:
        for start in range(0, len(text) - lowered.tokens + 1, lowered.tokens):
            tokens = np.asarray(text[start : start + lowered.tokens], np.int32)
            values = host.inputs(lowered, tokens, start)
            for mask in lowered.masks:
                seen = visible_slots(mask, lowered.tokens, lowered.context, start)
                values[mask.name] = np.where(seen, 0.0, _HIDDEN).astype(np.float32)
            blocks.append((start, values))
    if not blocks:
        raise RecipeError(
            f"the calibration text has no {lowered.tokens} tokens", "Give a longer text."
        )
    kept: dict[str, Array] = {}
    for number, piece in enumerate(method.pieces):
        interpreter = ReferenceInterpreter(weight_reader(weights, bits))
        own = {v.name: v for v in piece.inputs}
        caches = [cache for cache in lowered.caches if cache.name in own]
        filled: dict[str, Array] = {}
        for place, (position, values) in enumerate(blocks):
            for cache in caches:
                if position == 0:
                    filled[cache.name] = np.zeros(largest(own[cache.name].shape), np.float32)
                values[cache.name] = filled[cache.name]
            given = {name: values[name] for name in own}
            for name, array in given.items():
                watcher.see(name, array)
            results = interpreter.run(piece, given, after_node=watcher.after_node)
            for cache in caches:
                del values[cache.name]
                at = [slice(None)] * 3
                at[cache.axis] = slice(position, position + lowered.tokens)
                made = results.pop(cache.new)
                filled[cache.name][tuple(at)] = made
                if place == 0:
                    kept[cache.name] = made
            values.update(results)
            progress(number * len(blocks) + place + 1, len(method.pieces) * len(blocks))
    for name, (low, high) in watcher.ranges.items():
        if not (np.isfinite(low) and np.isfinite(high)):
            raise RecipeError(
                f"the calibration text gives {low} to {high} in {name}",
                "The checkpoint is damaged, or the model does not fit its configuration.",
            )
    first = next(text for text in texts if len(text) >= lowered.tokens)
    following = int(first[lowered.tokens % len(first)])
    return Measured(watcher.ranges, first[: lowered.tokens], following, kept)
