"""Places every intermediate value in one arena, so that running allocates nothing.

Values that are alive at the same time never overlap; the largest are placed first. Values take
turns in *slots*, each in the middle of its slot: two threads, of which one has the first half of
every value and the other the second, then never write where the other has just been, which is
expensive. Where slots need much more memory, or where sizes are known only when a method is called,
each value lies at the lowest offset that is free for its whole life.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from satchel.graph.ir import DType, Graph, Value, attr_ints

ALIGNMENT = 256  # as in the file
SLOTS_MAY_COST = 1.25  # times the memory of the tightest plan


@dataclass(frozen=True)
class MemoryPlan:
    offsets: dict[int, int]  # id(value) -> offset
    size: int


@dataclass
class _Life:
    value: Value
    first: int
    last: int

    @cached_property
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
        # Joined with others, a symbolic size is another one, and the loader cannot tell.
        joins = -1 in attr_ints(node.attrs, "shape")
        if id(source) not in own and id(result) not in own and not joins:
            shared[id(result)] = shared.get(id(source), source)
    return shared


def _joined_additions(graph: Graph, shared: dict[int, Value]) -> Iterator[tuple[int, int]]:
    """Steps of a layer of codes or floats and of the addition right behind it, done at once.

    The sum is then written while the layer's input is still being read.
    """
    layer: int | None = None
    for step, node in enumerate(graph.nodes):
        if node.op == "reshape" and id(node.outputs[0]) in shared:
            continue
        if node.op == "add" and layer is not None:
            result = graph.nodes[layer].outputs[0]
            if any(shared.get(id(value), value) is result for value in node.inputs):
                yield layer, step
        of_codes = node.op == "qlinear" and node.outputs[0].type.dtype == DType.f32
        of_floats = node.op == "linear" and node.attrs.get("activations", "f32") == "f32"
        layer = step if of_codes or of_floats else None


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
    for layer, addition in _joined_additions(graph, shared):
        read = graph.nodes[layer].inputs[0]
        life = lives.get(id(shared.get(id(read), read)))
        if life is not None:
            life.last = max(life.last, addition)

    ordered = sorted(lives.values(), key=lambda one: (-one.size, one.first))
    plan = _tightest(ordered)
    if all(isinstance(d, int) for life in ordered for d in life.value.type.shape):
        slots = _in_slots(ordered)
        plan = slots if slots.size <= SLOTS_MAY_COST * plan.size else plan
    for result, root in shared.items():
        if id(root) in plan.offsets:
            plan.offsets[result] = plan.offsets[id(root)]
    assert not inputs & plan.offsets.keys()
    return plan


@dataclass(frozen=True)
class Life:
    """So many bytes that are needed from one step to another."""

    size: int
    first: int
    last: int


def place_lives(lives: Sequence[Life]) -> tuple[list[int], int]:
    """Offsets of memory that is needed at certain steps, and how much it is in all.

    The largest are placed first, each at the lowest offset that is free for its whole life.

    >>> place_lives([Life(8, 0, 1), Life(16, 1, 2), Life(8, 2, 3)])
    ([16, 0, 16], 24)
    """
    order = sorted(range(len(lives)), key=lambda n: (-lives[n].size, lives[n].first))
    placed, size = _lowest_offsets([lives[n] for n in order])
    offsets = [0] * len(lives)
    for number, offset in zip(order, placed, strict=True):
        offsets[number] = offset
    return offsets, size


def _tightest(lives: list[_Life]) -> MemoryPlan:
    """Each at the lowest offset that is free for its whole life."""
    offsets, size = _lowest_offsets([Life(one.size, one.first, one.last) for one in lives])
    return MemoryPlan({id(life.value): at for life, at in zip(lives, offsets, strict=True)}, size)


def _lowest_offsets(lives: Sequence[Life]) -> tuple[list[int], int]:
    alive: dict[int, list[int]] = defaultdict(list)  # step -> numbers of those placed by then
    offsets: list[int] = []
    for number, life in enumerate(lives):
        steps = range(life.first, life.last + 1)
        offset = 0
        for start, other in sorted((offsets[n], n) for n in {n for s in steps for n in alive[s]}):
            end = start + lives[other].size
            if start < offset + life.size and offset < end:
                offset = end
        offsets.append(offset)
        for step in steps:
            alive[step].append(number)
    size = max((at + life.size for life, at in zip(lives, offsets, strict=True)), default=0)
    return offsets, size


def _has_room(taken: list[tuple[int, int]], life: _Life) -> bool:
    """Whether none of these turns, which are in order and apart, meets a life."""
    at = bisect_right(taken, (life.first, life.last))
    free_before = at == 0 or taken[at - 1][1] < life.first
    return free_before and (at == len(taken) or taken[at][0] > life.last)


def _in_slots(lives: list[_Life]) -> MemoryPlan:
    """Each in the middle of the first slot whose other values do not meet it; largest first."""
    slots: list[list[_Life]] = []
    turns: list[list[tuple[int, int]]] = []  # of each slot, in order: from which step to which
    for life in lives:
        number = next((n for n, taken in enumerate(turns) if _has_room(taken, life)), len(slots))
        if number == len(slots):
            slots.append([])
            turns.append([])
        slots[number].append(life)
        insort(turns[number], (life.first, life.last))
    offsets: dict[int, int] = {}
    start = 0
    for slot in slots:
        room = slot[0].size
        for life in slot:
            before = (room - life.size) // 2 // ALIGNMENT * ALIGNMENT
            offsets[id(life.value)] = start + before
        start += room
    return MemoryPlan(offsets, start)
