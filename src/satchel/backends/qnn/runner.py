"""Calls compiled methods: what the host does before, between and after the NPU's graphs.

A KV cache is updated in place (the smart mask): after a call only the new tokens' slots are
written, and the mask of the next call uncovers them. Nothing is moved or copied otherwise. A
module's method is called in the same way, and has neither cache nor mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.lowering import MaskInput
from satchel.backends.qnn.manifest import CompiledMethod, Tensor
from satchel.errors import ExecutionError
from satchel.graph.ops.attention import tree_depths
from satchel.graph.ops.registry import check_rows
from satchel.program.names import ACCEPT_METHOD, KV_METHOD, LOOKAHEAD_METHOD
from satchel.runtime.program import Instance, Method

Array = NDArray[Any]
Arrays = dict[str, Array]
# Runs one shard of a method: its number, the method's name, codes in, codes out.
Execute = Callable[[int, str, Mapping[str, Array]], Mapping[str, Array]]


class Host:
    """The parts of a program that the CPU runs for the NPU."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._methods: dict[str, Method] = {}

    def run(self, name: str | None, known: Mapping[str, Array]) -> Arrays:
        """What a part makes of values by their names; nothing if there is no such part."""
        if name is None:
            return {}
        method = self._methods.setdefault(name, self._instance.method(name))
        made = method.run(*(known[source] for source in method.inputs))
        return dict(zip(method.outputs, made, strict=True))

    def outputs(self, name: str) -> list[str]:
        """What a method of the program gives."""
        return self._instance.method(name).outputs


def in_a_line(tokens: int) -> Array:
    """Each token stands behind the one before it."""
    return np.arange(-1, tokens - 1, dtype=np.int32)


def visible_slots(
    mask: MaskInput, tokens: int, context: int, position: int, parents: Array | None = None
) -> Array:
    """Which slots each token sees, [tokens, context + tokens]: old ones, then new ones.

    Of the new ones a token sees itself and its ancestors, which are all before it in a line.
    """
    parents = in_a_line(tokens) if parents is None else parents
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
    tensor: Tensor,
    mask: MaskInput,
    method: CompiledMethod,
    position: int,
    parents: Array | None = None,
) -> Array:
    """Zero for what is seen, and the lowest number for what is not."""
    encoding = tensor.encoding
    seen = visible_slots(mask, method.tokens, method.context, position, parents)
    return np.where(seen, encoding.zero_point, encoding.lowest).astype(encoding.dtype)


class Runner:
    """Methods that share one KV cache, over anything that can execute their shards."""

    def __init__(self, methods: Mapping[str, CompiledMethod], host: Host, execute: Execute) -> None:
        self.methods, self._host, self._execute = methods, host, execute
        self._tensors = {name: method.tensors for name, method in methods.items()}
        self.caches: Arrays = {}
        for name, method in methods.items():
            for cache in method.caches:
                held = self._tensors[name][cache.name]
                empty = np.full(held.shape, held.encoding.zero_point, held.encoding.dtype)
                self.caches.setdefault(cache.name, empty)

    def run(self, name: str, inputs: Mapping[str, Array]) -> Arrays:
        """A method's outputs by name, of its inputs by name.

        Where there is a method for trees, it also does single tokens: both are then the same
        computation.
        """
        if name == ACCEPT_METHOD:
            self.keep(inputs["rows"], int(inputs["position"][0]))
            return {}
        if name not in self.methods and name == KV_METHOD:
            name = LOOKAHEAD_METHOD
        method = self.methods[name]
        return self._step(method, inputs) if method.tokens else self._forward(method, inputs)

    def _forward(self, method: CompiledMethod, inputs: Mapping[str, Array]) -> Arrays:
        """A module's call."""
        known = dict(inputs)
        known |= self._host.run(method.before, known)
        codes = self._chain(method, self.codes(method, known))
        tensors = self._tensors[method.name]
        known |= {key: tensors[key].encoding.dequantize(array) for key, array in codes.items()}
        known |= self._host.run(method.after, known)
        return {name: known[name] for name in self._host.outputs(method.name)}

    def _step(self, method: CompiledMethod, inputs: Mapping[str, Array]) -> Arrays:
        """The logits after the tokens that ``rows`` names, or after all.

        With ``parents`` the tokens are a tree; they go into the cache in their order, and
        :meth:`keep` leaves those that are to stay.
        """
        tokens, position = inputs["tokens"], inputs["position"]
        rows, parents = inputs.get("rows"), inputs.get("parents")
        if tokens.ndim != 1 or not len(tokens) or position.shape != tokens.shape:
            raise ExecutionError(f"{method.name} takes tokens [n], each with its position")
        start, count = int(position[0]), len(tokens)
        depths = tree_depths(in_a_line(count) if parents is None else parents)
        if inputs["sequence"].any() or (position != start + depths).any():
            raise ExecutionError(f"{method.name} takes tokens of one conversation, in order")
        if not 1 <= count <= method.tokens:
            raise ExecutionError(f"{method.name} takes 1 to {method.tokens} tokens, not {count}")
        if start < 0 or start + count > method.context:
            raise ExecutionError(
                f"the tokens {start} to {start + count - 1} do not fit in a context of "
                f"{method.context}"
            )
        rows = np.arange(count) if rows is None else rows
        check_rows(rows, count, "row")
        padded = np.zeros(method.tokens, np.int32)  # what follows the tokens is never seen
        padded[:count] = tokens
        whole = in_a_line(method.tokens)
        if parents is not None:
            if len(parents) != count:
                raise ExecutionError(f"{len(parents)} parents are no tree of {count} tokens")
            whole[:count] = parents
            whole[count:] = -1
        given = {"tokens": padded, "position": start + tree_depths(whole)}
        codes = self.codes(method, self._host.run(method.before, given))
        for mask in method.masks:
            tensor = self._tensors[method.name][mask.name]
            codes[mask.name] = mask_codes(tensor, mask, method, start, whole)
        codes = self._chain(method, codes | self.caches)
        self._write(method, codes, start, count)
        tensors = self._tensors[method.name]
        parts = [
            tensors[name].encoding.dequantize(codes[name][rows])
            for name in method.parts.get("logits", ["logits"])
        ]
        return {"logits": np.concatenate(parts, axis=1)}

    def codes(self, method: CompiledMethod, numbers: Mapping[str, Array]) -> Arrays:
        """What the NPU is given for these numbers."""
        tensors = self._tensors[method.name]
        return {
            name: tensors[name].encoding.quantize(np.asarray(array))
            for name, array in numbers.items()
            if name in tensors
        }

    def _chain(self, method: CompiledMethod, codes: Arrays) -> Arrays:
        """All codes after the shards have run one after the other."""
        for number, shard in enumerate(method.shards):
            given = {tensor.name: codes[tensor.name] for tensor in shard.inputs}
            codes |= self._execute(number, method.name, given)
        return codes

    def keep(self, rows: Array, position: int) -> None:
        """Move what some of the last tokens put into the cache together."""
        method = self.methods[LOOKAHEAD_METHOD]
        check_rows(rows, method.tokens, "row")
        if (np.diff(rows) < 1).any():
            raise ExecutionError("the rows that are kept must rise")
        for cache in method.caches:
            slots = np.moveaxis(self.caches[cache.name], cache.axis, 0)
            if position < 0 or position + int(rows.max(initial=0)) >= len(slots):
                raise ExecutionError(f"the tokens at {position} are not in the cache")
            slots[position : position + len(rows)] = slots[position + rows]

    def _write(self, method: CompiledMethod, codes: Arrays, position: int, count: int) -> None:
        for cache in method.caches:
            slots = np.moveaxis(self.caches[cache.name], cache.axis, 0)
            new = np.moveaxis(codes[cache.new], cache.axis, 0)
            slots[position : position + count] = new[:count]
