"""A method of a .pte file, put together value by value, and where its values lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from executorch.exir import schema
from executorch.exir.scalar_type import ScalarType

from satchel.backends.weight_rows import Bytes
from satchel.graph.ir import Dim, Sym
from satchel.graph.memory_plan import Life, place_lives

FLOAT, LONG, INT8, UINT8, BOOL = (
    ScalarType.FLOAT,
    ScalarType.LONG,
    ScalarType.CHAR,
    ScalarType.BYTE,
    ScalarType.BOOL,
)
_BYTES = {FLOAT: 4, LONG: 8, INT8: 1, UINT8: 1, BOOL: 1}
_ALIGNMENT = 16
_ARENA, _STATES = 1, 2  # numbers of the memories
XNNPACK = "XnnpackBackend"


@dataclass
class Constants:
    """What kernels read and nobody writes, one after the other in a segment of the file."""

    parts: list[Bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])  # the first one stands for none
    size: int = 0
    known: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, data: Bytes) -> int:
        """The number of the bytes, which are stored once."""
        if name not in self.known:
            padding = -self.size % _ALIGNMENT
            if padding:
                self.parts.append(Bytes(padding, lambda _: iter([bytes(padding)])))
            self.offsets.append(self.size + padding)
            self.parts.append(data)
            self.size += padding + data.size
            self.known[name] = len(self.offsets) - 1
        return self.known[name]


@dataclass
class _Planned:
    tensor: Any
    size: int
    first: int
    last: int


class MethodWriter:
    """Values are numbers. Those that kernels make get their place when all is known."""

    def __init__(self, name: str, constants: Constants) -> None:
        self.name = name
        self.values: list[Any] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.delegates: list[bytes] = []
        self._constants = constants
        self._operators: list[tuple[str, str]] = []
        self._instructions: list[Any] = []
        self._scalars: dict[Any, int] = {}
        self._planned: dict[int, _Planned] = {}
        self._state_bytes = 0

    # Values.

    def _value(self, value: Any) -> int:
        self.values.append(schema.EValue(value))
        return len(self.values) - 1

    def tensor(self, shape: Sequence[Dim], kind: Any = FLOAT) -> int:
        """A value that a kernel, a delegate or the caller makes."""
        dynamic = any(isinstance(dim, Sym) for dim in shape)
        sizes = [dim.maximum if isinstance(dim, Sym) else dim for dim in shape]
        made = _tensor(sizes, kind, 0, dynamic)
        number = self._value(made)
        step = len(self._instructions)
        self._planned[number] = _Planned(made, prod(sizes) * _BYTES[kind], step, step)
        return number

    def input(self, shape: Sequence[Dim], kind: Any) -> int:
        number = self.tensor(shape, kind)
        self.inputs.append(number)
        return number

    def constant(self, name: str, shape: Sequence[int], data: Bytes, kind: Any = FLOAT) -> int:
        """A tensor of the file; the same name is the same tensor."""
        key = ("constant", name)
        if key not in self._scalars:
            number = self._constants.add(name, data)
            self._scalars[key] = self._value(_tensor(list(shape), kind, number, False))
        return self._scalars[key]

    def state(self, shape: Sequence[int]) -> int:
        """Memory that stays from call to call."""
        made = _tensor(list(shape), FLOAT, 0, False)
        made.allocation_info = _place(_STATES, self._state_bytes)
        size = prod(shape) * _BYTES[FLOAT]
        self._state_bytes += size + -size % _ALIGNMENT
        return self._value(made)

    def whole(self, number: int) -> int:
        return self._scalar("int", number, schema.Int(number))

    def real(self, number: float) -> int:
        return self._scalar("double", number, schema.Double(float(number)))

    def flag(self, truth: bool) -> int:
        return self._scalar("bool", truth, schema.Bool(truth))

    @property
    def none(self) -> int:
        return self._scalar("none", None, schema.Null())

    def wholes(self, numbers: Sequence[int]) -> int:
        items = [self.whole(number) for number in numbers]
        return self._scalar("list", tuple(items), schema.IntList(items))

    def unknown_whole(self) -> int:
        """A whole number that a kernel finds out."""
        return self._value(schema.Int(0))

    def _scalar(self, kind: str, number: Any, value: Any) -> int:
        key = (kind, number)
        if key not in self._scalars:
            self._scalars[key] = self._value(value)
        return self._scalars[key]

    # Instructions.

    def kernel(self, name: str, *arguments: int) -> None:
        """``aten::add.out``: its arguments in their order, what it writes last."""
        operator, _, overload = name.partition(".")
        if (operator, overload) not in self._operators:
            self._operators.append((operator, overload))
        index = self._operators.index((operator, overload))
        # What an out variant writes is also what it returns.
        more = [arguments[-1]] if "out" in overload.rpartition("_")[2] else []
        self._run(schema.KernelCall(index, [*arguments, *more]), arguments)

    def made(self, name: str, shape: Sequence[Dim], *arguments: int, kind: Any = FLOAT) -> int:
        """The result of a kernel."""
        result = self.tensor(shape, kind)
        self.kernel(name, *arguments, result)
        return result

    def delegate(self, graph: bytes, arguments: Sequence[int]) -> None:
        self.delegates.append(graph)
        self._run(schema.DelegateCall(len(self.delegates) - 1, list(arguments)), arguments)

    def _run(self, call: Any, touched: Sequence[int]) -> None:
        step = len(self._instructions)
        for number in touched:
            if number in self._planned:
                self._planned[number].last = step
        self._instructions.append(schema.Instruction(call))

    def finish(self, first_delegate: int) -> Any:
        """The method; its delegates lie in the program from ``first_delegate`` on."""
        for number in self.inputs:
            self._planned[number].first = 0
        for number in self.outputs:
            if number in self._planned:
                self._planned[number].last = len(self._instructions)
        planned = [one for one in self._planned.values()]
        lives = [Life(one.size + -one.size % _ALIGNMENT, one.first, one.last) for one in planned]
        offsets, size = place_lives(lives)
        for one, offset in zip(planned, offsets, strict=True):
            one.tensor.allocation_info = _place(_ARENA, offset)
        self.arena_bytes, self.state_bytes = size, self._state_bytes
        references = [
            schema.BackendDelegate(
                XNNPACK,
                schema.BackendDelegateDataReference(
                    schema.DataLocation.INLINE, first_delegate + number
                ),
                [],
            )
            for number in range(len(self.delegates))
        ]
        return schema.ExecutionPlan(
            name=self.name,
            container_meta_type=schema.ContainerMetadata("", ""),
            values=self.values,
            inputs=self.inputs,
            outputs=self.outputs,
            chains=[schema.Chain([], [], self._instructions, None)],
            operators=[schema.Operator(*operator) for operator in self._operators],
            delegates=references,
            non_const_buffer_sizes=[0, size, self._state_bytes][: 3 if self._state_bytes else 2],
        )


def told_method(name: str, numbers: Sequence[int | bool]) -> Any:
    """A method without inputs that tells something of the model."""
    kinds = [
        schema.Bool(number) if isinstance(number, bool) else schema.Int(number)
        for number in numbers
    ]
    return schema.ExecutionPlan(
        name=name,
        container_meta_type=schema.ContainerMetadata("", ""),
        values=[schema.EValue(value) for value in kinds],
        inputs=[],
        outputs=list(range(len(kinds))),
        chains=[schema.Chain([], [], [], None)],
        operators=[],
        delegates=[],
        non_const_buffer_sizes=[0],
    )


def _tensor(sizes: list[int], kind: Any, data: int, dynamic: bool) -> Any:
    bound = schema.TensorShapeDynamism
    return schema.Tensor(
        scalar_type=kind,
        storage_offset=0,
        sizes=sizes,
        dim_order=list(range(len(sizes))),
        requires_grad=False,
        layout=0,
        data_buffer_idx=data,
        allocation_info=None,
        shape_dynamism=bound.DYNAMIC_BOUND if dynamic else bound.STATIC,
    )


def _place(memory: int, offset: int) -> Any:
    return schema.AllocationDetails(memory, offset & 0xFFFFFFFF, offset >> 32)
