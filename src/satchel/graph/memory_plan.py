"""Places every intermediate value in one arena, so that running allocates nothing.

Values that are alive at the same time never overlap; the largest are placed first, each at
the lowest offset that is free for its whole life.
"""

from __future__ import annotations

from dataclasses import dataclass

from satchel.graph.ir import Graph, Value

ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    offsets: dict[int, int]  # id(value) -> offset
    size: int


@dataclass
class _Life:
    value: Value
    first: int
    last: int

    @property
    def size(self) -> int:
        return -(-self.value.type.max_bytes // ALIGNMENT) * ALIGNMENT


def needs_memory(value: Value) -> bool:
    """Inputs, weights, constants and states have memory of their own."""
    return value.weight is None and value.constant is None and value.state is None


def shared_storage(graph: Graph) -> dict[int, Value]:
    """For the output of a reshape that needs no copy: the value whose memory it shares."""
    own = {id(v) for v in graph.inputs} | {id(v) for v in graph.outputs}
    shared: dict[int, Value] = {}
    for node in graph.nodes:
        source, result = node.inputs[0], node.outputs[0]
        if node.op != "reshape" or source is None or not needs_memory(source):
            continue
        if id(source) not in own and id(result) not in own:
            shared[id(result)] = shared.get(id(source), source)
    return shared


def plan_memory(graph: Graph) -> MemoryPlan:
    shared = shared_storage(graph)
    lives: dict[int, _Life] = {}
    inputs = {id(v) for v in graph.inputs}
    for step, node in enumerate(graph.nodes):
        for value in node.outputs:
            root = shared.get(id(value), value)
            if needs_memory(root) and id(root) not in lives:
                lives[id(root)] = _Life(root, step, step)
        for used in node.inputs:
            root_used = shared.get(id(used), used)
            if root_used is not None and id(root_used) in lives:
                lives[id(root_used)].last = step
    for value in graph.outputs:
        if id(value) in lives:
            lives[id(value)].last = len(graph.nodes)

    offsets: dict[int, int] = {}
    placed: list[tuple[_Life, int]] = []
    for life in sorted(lives.values(), key=lambda one: (-one.size, one.first)):
        offset = 0
        for other, start in sorted(placed, key=lambda entry: entry[1]):
            alive_together = life.first <= other.last and other.first <= life.last
            if alive_together and start < offset + life.size and offset < start + other.size:
                offset = start + other.size
        placed.append((life, offset))
        offsets[id(life.value)] = offset
    for result, root in shared.items():
        if id(root) in offsets:
            offsets[result] = offsets[id(root)]
    assert not inputs & offsets.keys()
    return MemoryPlan(offsets, max((at + life.size for life, at in placed), default=0))
