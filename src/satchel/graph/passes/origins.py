"""Where the elements of a value come from that was only moved: reshaped, transposed, sliced.

However a program writes it (rolls, views, permutes, unbinds), what arrives is an array of element
numbers of one source, and patterns are found by looking at those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.graph.ir import Attribute, DType, Graph, Node, TensorType, Value, constant_name
from satchel.graph.ops import Trait, find_op, infer_types, ops_with

Array = NDArray[Any]

MOVES = ops_with(Trait.moves)
ROW_WISE = ops_with(Trait.row_wise)
MOST_ELEMENTS = 1 << 24
MOST_KEPT = 1 << 29  # bytes of numbers; what is dropped is found again when it is asked for


@dataclass(frozen=True)
class Origin:
    """Element ``numbers[i, j, …]`` of ``source`` is the value's element [i, j, …]."""

    source: Value
    numbers: Array

    @property
    def width(self) -> int:
        """The size of the source's rows."""
        return known_shape(self.source)[-1] if self.source.shape else 1

    def is_identity(self) -> bool:
        """Whether the value is the source in another shape."""
        return self.numbers.size == elements(self.source) and _counts_up(self.numbers.reshape(-1))

    def rows(self, width: int) -> Array | None:
        """The numbers of the source's rows of that width, if the value is made of whole ones."""
        if self.numbers.size % width or elements(self.source) % width:
            return None
        table = self.numbers.reshape(-1, width)
        first = table[:, 0]
        whole = (first % width == 0).all() and (table == first[:, None] + np.arange(width)).all()
        return first // width if whole else None


def _counts_up(numbers: Array) -> bool:
    return bool((numbers == np.arange(numbers.size)).all())


def is_known(value: Value) -> bool:
    return all(isinstance(d, int) for d in value.shape)


def known_shape(value: Value) -> tuple[int, ...]:
    assert is_known(value)
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]


def elements(value: Value) -> int:
    return int(np.prod(known_shape(value), dtype=np.int64))


def _itself(value: Value) -> Origin:
    own = np.arange(elements(value), dtype=np.int32).reshape(known_shape(value))
    return Origin(value, own)


class Origins:
    """The origins of a graph's values.

    A row-wise node on moved rows can as well come before the move: then the origin is such a node's
    result, which is ``planned`` and not in the graph until someone puts it there.
    """

    def __init__(self, graph: Graph, label: str) -> None:
        self.label = label  # in the names of new values
        self.makers = {id(v): node for node in graph.nodes for v in node.outputs}
        self.readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self.readers.setdefault(id(value), []).append(node)
        self.outputs = {id(v) for v in graph.outputs}
        self.planned: dict[int, Node] = {}  # by the id of their result
        self._found: dict[int, Origin | None] = {}  # the latest last
        self._own: set[int] = set()  # values that come from nowhere else
        self._kept = 0
        self._stands_for: dict[int, Value] = {}  # by the id of a planned result
        self._names = 0

    def of(self, value: Value) -> Origin | None:
        """None where sizes are not known, or the value is too large to look at."""
        if id(value) in self._own:
            return _itself(value)
        if id(value) in self._found:
            return self._found[id(value)]
        found = self._find(value)
        if found is not None and found.source is value:
            self._own.add(id(value))
            return found
        self._found[id(value)] = found
        self._kept += found.numbers.nbytes if found is not None else 0
        self._drop_oldest()
        return found

    def _drop_oldest(self) -> None:
        """But for those whose source is planned: found again, there would be another."""
        if self._kept <= MOST_KEPT:
            return
        for key, found in list(self._found.items()):
            if found is not None and id(found.source) not in self._stands_for:
                self._kept -= found.numbers.nbytes
                del self._found[key]
            if self._kept <= MOST_KEPT // 2:
                return

    def _find(self, value: Value) -> Origin | None:
        if not is_known(value) or not 0 < elements(value) <= MOST_ELEMENTS:
            return None
        node = self.makers.get(id(value))
        if node is not None and node.op in MOVES:
            moved = self._moved(node)
            if moved is not None:
                return moved
        if node is not None and node.op in ROW_WISE:
            swapped = self._swapped(node, value)
            if swapped is not None:
                return swapped
        return _itself(value)

    def _moved(self, node: Node) -> Origin | None:
        moved = node.inputs if node.op == "concat" else node.inputs[:1]
        found = [self.of(v) if v is not None and v.constant is None else None for v in moved]
        if any(one is None for one in found):
            return None
        kept = [one for one in found if one is not None]
        if any(one.source is not kept[0].source for one in kept):
            return None
        others: list[Array] = []
        for other in node.inputs[len(moved) :]:
            if other is None or other.constant is None:
                return None
            others.append(other.constant)
        arrays = [one.numbers for one in kept] + others
        (numbers,) = find_op(node.op).reference(arrays, node.attrs)
        return Origin(kept[0].source, numbers)

    def _swapped(self, node: Node, value: Value) -> Origin | None:
        """The node on the rows as they were before they were moved."""
        x = node.inputs[0]
        found = self.of(x) if x is not None else None
        if found is None or x is None or found.source is x or found.is_identity():
            return None
        before, after = known_shape(x)[-1], known_shape(value)[-1]
        rows = found.rows(before)
        if rows is None or rows.size * before != elements(found.source):
            return None
        if not _counts_up(np.sort(rows)):
            return None
        source = found.source
        if found.width != before:
            source = self.node("reshape", [source], {"shape": (rows.size, before)}).outputs[0]
        result = self.node(node.op, [source, *node.inputs[1:]], dict(node.attrs)).outputs[0]
        self._stands_for[id(result)] = value
        numbers = rows[:, None] * after + np.arange(after)
        return Origin(result, numbers.astype(np.int32).reshape(known_shape(value)))

    def node(self, op: str, inputs: list[Value | None], attrs: dict[str, Attribute]) -> Node:
        """A planned node."""
        (type,) = infer_types(op, [v.type if v else None for v in inputs], attrs)
        self._names += 1
        made = Node(op, inputs, [Value(f"{op}.{self.label}{self._names}", type)], attrs)
        self.planned[id(made.outputs[0])] = made
        return made

    def constant(self, name: str, array: Array) -> Value:
        unique = constant_name(name, array)
        return Value(unique, TensorType(array.shape, DType(array.dtype.name)), constant=array)

    # --- putting planned nodes into a graph ---

    def take_planned(self, value: Value, nodes: list[Node]) -> None:
        """Append what makes a planned value, if it is one and not there yet."""
        node = self.planned.pop(id(value), None)
        if node is None:
            return
        for source in node.inputs:
            if source is not None:
                self.take_planned(source, nodes)
        nodes.append(node)

    def replaces(self, source: Value, readers: set[int]) -> bool:
        """Whether a planned value makes the one it stands for needless, if these nodes (by id) and
        all that read it in the source's order take it instead. A value that is none does.
        """
        original = self._stands_for.get(id(source))
        return original is None or self._only_read_by(original, source, readers)

    def unswapped(self, found: Origin) -> Origin:
        """The origin in the value that a planned one stands for."""
        original = self._stands_for[id(found.source)]
        own = self.of(original)
        assert own is not None
        back = np.empty(own.numbers.size, np.int32)
        back[own.numbers.reshape(-1)] = np.arange(back.size)
        return Origin(original, back[found.numbers])

    def _only_read_by(self, value: Value, source: Value, readers: set[int]) -> bool:
        if id(value) in self.outputs:
            return False
        for node in self.readers.get(id(value), []):
            if id(node) in readers:
                continue
            if node.op in MOVES and self._only_read_by(node.outputs[0], source, readers):
                continue
            found = self.of(value)
            if found is None or found.source is not source or not found.is_identity():
                return False
        return True
