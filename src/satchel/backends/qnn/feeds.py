"""What a program is calibrated with and tried out on: texts, or examples of a module's input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.calibrate import Calibrated, Feed
from satchel.backends.qnn.lowering import Lowered
from satchel.backends.qnn.manifest import CompiledMethod
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.runner import Host, mask_codes, visible_slots
from satchel.backends.qnn.shards import choose_cuts, cut_points, needed_shards, split
from satchel.errors import RecipeError
from satchel.graph.ir import DType, Graph, Node, largest
from satchel.runtime.program import Instance

Array = NDArray[Any]
Example = Mapping[str, Array]
MEASURED_AT_ONCE = 100_000_000  # bytes of a module's weights and values
_HIDDEN = -1e9  # added to the scores of slots that are not seen


@dataclass
class Probe:
    """The codes of a method's inputs, and, where they are known, its outputs without rounding."""

    method: str
    codes: dict[str, Array]
    exact: dict[str, Array]
    position: int = 0  # of its token


class Feeds(Protocol):
    """Where the calls come from that ranges are measured on."""

    def lowered(self, prepared: PreparedProgram) -> tuple[Lowered, list[Graph]]:
        """The graph that is measured, and the pieces in which that is done."""
        ...

    def feeds(self, prepared: PreparedProgram, lowered: Lowered) -> list[Feed]: ...

    def probe(self, prepared: PreparedProgram, calibrated: Calibrated) -> Probe:
        """A call of the shortest method, to try out what was compiled."""
        ...


@dataclass(frozen=True)
class TextFeeds:
    """Texts, which are tokens, go through a method of the program in whole blocks."""

    method: str
    texts: Sequence[Array]
    block: int

    def lowered(self, prepared: PreparedProgram) -> tuple[Lowered, list[Graph]]:
        context = max((len(text) for text in self.texts), default=self.block)
        lowered = prepared.lower(self.method, self.block, context)
        # In the smallest pieces: the weights of one at a time are in memory, as floats.
        return lowered, split(lowered.npu, cut_points(lowered.npu))

    def feeds(self, prepared: PreparedProgram, lowered: Lowered) -> list[Feed]:
        host = Host(Instance(prepared.program))
        made = []
        for text in self.texts:
            for start in range(0, len(text) - self.block + 1, self.block):
                tokens = np.asarray(text[start : start + self.block], np.int32)
                values = host.run(lowered.before.name, _call(tokens, start))
                for mask in lowered.masks:
                    seen = visible_slots(mask, self.block, lowered.context, start)
                    values[mask.name] = np.where(seen, 0.0, _HIDDEN).astype(np.float32)
                made.append(Feed(values, start))
        if not made:
            raise RecipeError(
                f"the calibration text has no {self.block} tokens", "Give a longer text."
            )
        return made

    def probe(self, prepared: PreparedProgram, calibrated: Calibrated) -> Probe:
        """The token that follows the first block of a real text."""
        method = self.probed(prepared)
        first = next(text for text in self.texts if len(text) >= self.block)
        longest = max(one.tokens for one in prepared.methods.values())
        position = min(self.block, method.context - longest)
        tokens = np.full(method.tokens, first[self.block % len(first)], np.int32)
        host = Host(Instance(prepared.program))
        numbers = host.run(method.before, _call(tokens, position))
        tensors = method.tensors
        codes = {name: tensors[name].encoding.quantize(array) for name, array in numbers.items()}
        for mask in method.masks:
            codes[mask.name] = mask_codes(tensors[mask.name], mask, method, position)
        for cache in method.caches:
            encoding = tensors[cache.name].encoding
            shape = tensors[cache.name].shape
            codes[cache.name] = filled = np.full(shape, encoding.zero_point, encoding.dtype)
            known = np.moveaxis(calibrated.caches[cache.name], cache.axis, 0)[:position]
            np.moveaxis(filled, cache.axis, 0)[:position] = encoding.quantize(known)
        return Probe(method.name, codes, {}, position)

    def probed(self, prepared: PreparedProgram) -> CompiledMethod:
        """The shortest method."""
        return min(prepared.methods.values(), key=lambda method: method.tokens)


def _call(tokens: Array, position: int) -> dict[str, Array]:
    positions = np.arange(position, position + len(tokens), dtype=np.int32)
    return {"tokens": tokens, "position": positions}


def _floats_of(node: Node) -> int:
    """The bytes of a node's weights and results as floats."""
    weights = [v.type.max_bytes for v in node.inputs if v is not None and v.weight is not None]
    return sum(weights) + sum(v.type.max_bytes for v in node.outputs)


def made_up_examples(graph: Graph) -> list[Example]:
    """One call with random numbers: enough where no ranges are measured."""
    random = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for value in graph.inputs:
        shape = largest(value.shape)
        floats = value.dtype == DType.f32
        made[value.name] = (
            random.normal(size=shape).astype(np.float32)
            if floats
            else np.zeros(shape, value.dtype.numpy)
        )
    return [made]


@dataclass(frozen=True)
class ExampleFeeds:
    """Examples of a module's inputs, by their names."""

    method: str
    examples: Sequence[Example]

    def lowered(self, prepared: PreparedProgram) -> tuple[Lowered, list[Graph]]:
        lowered = prepared.lowered[self.method]
        graph = lowered.npu
        # As few as can be: each is written out as floats, and gives all its values at once.
        count = needed_shards(graph, _floats_of, MEASURED_AT_ONCE)
        return lowered, split(graph, choose_cuts(graph, _floats_of, count))

    def feeds(self, prepared: PreparedProgram, lowered: Lowered) -> list[Feed]:
        return [Feed(self._given(prepared, example)) for example in self.examples]

    def _given(self, prepared: PreparedProgram, example: Example) -> dict[str, Array]:
        """What the NPU's part is given, computed by what comes before it."""
        before = f"{self.method}.before"
        known = dict(example)
        if before in prepared.graphs:
            known |= Host(Instance(prepared.program)).run(before, known)
        return {v.name: known[v.name] for v in prepared.lowered[self.method].npu.inputs}

    def probe(self, prepared: PreparedProgram, calibrated: Calibrated) -> Probe:
        """The first example, with what the CPU makes of it in floats."""
        example = self._given(prepared, self.examples[0])
        tensors = prepared.methods[self.method].tensors
        codes = {name: tensors[name].encoding.quantize(a) for name, a in example.items()}
        exact = Host(Instance(prepared.program)).run(prepared.source(self.method), example)
        return Probe(self.method, codes, exact)
