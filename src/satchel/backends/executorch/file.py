"""Writes a .pte file: the program, then its segments, none of which is ever whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from executorch.exir import schema
from executorch.exir._serialize._flatbuffer_program import _program_to_flatbuffer
from executorch.exir._serialize._program import _ExtendedHeader, _insert_flatbuffer_header

from satchel.backends.executorch.method import Constants, MethodWriter
from satchel.backends.weight_rows import Bytes
from satchel.runtime.program import Program

_SEGMENT_ALIGNMENT = 128
_CONSTANT_ALIGNMENT = 16
_MAGIC = r"ET[0-9a-zA-Z][0-9a-zA-Z]"


@dataclass(frozen=True)
class PteFile:
    """Methods, the constants of their kernels, and the named bytes of their delegates."""

    methods: Sequence[MethodWriter]
    told: Sequence[Any]  # methods that tell something of the model
    constants: Constants
    named: Mapping[str, Bytes]

    @cached_property
    def _segments(self) -> list[list[Bytes]]:
        return [self.constants.parts, *([part] for part in self.named.values())]

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Where each segment begins, behind the program, and its size."""
        places, end = [], 0
        for parts in self._segments:
            start = end + -end % _SEGMENT_ALIGNMENT
            end = start + sum(part.size for part in parts)
            places.append((start, end - start))
        return places

    @cached_property
    def _program(self) -> bytes:
        plans: list[Any] = []
        graphs: list[bytes] = []
        for method in self.methods:
            plans.append(method.finish(len(graphs)))
            graphs += method.delegates
        program = schema.Program(
            version=0,
            execution_plan=[*plans, *self.told],
            constant_buffer=[],
            backend_delegate_data=[schema.BackendDelegateInlineData(data) for data in graphs],
            segments=[schema.DataSegment(*place) for place in self._places],
            constant_segment=schema.SubsegmentOffsets(0, self.constants.offsets),
            mutable_data_segments=None,
            named_data=[schema.NamedData(key, number) for number, key in enumerate(self.named, 1)],
        )
        flat = _program_to_flatbuffer(
            program, constant_tensor_alignment=_CONSTANT_ALIGNMENT, delegate_alignment=16
        )
        length = _ExtendedHeader.EXPECTED_LENGTH
        length += -length % flat.max_alignment
        size = length + len(flat.data)
        header = _ExtendedHeader(size, size + -size % _SEGMENT_ALIGNMENT, sum(self._places[-1]))
        filled = header.to_bytes().ljust(length, b"\0")
        whole: bytes = _insert_flatbuffer_header(flat.data, _MAGIC, filled)
        return whole

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        start = len(self._program)
        return start + -start % _SEGMENT_ALIGNMENT + sum(self._places[-1])

    @property
    def runtime_bytes(self) -> int:
        """What its methods need beside weights when they run: values between parts, and caches."""
        _ = self._program
        return sum(method.arena_bytes + method.state_bytes for method in self.methods)

    def write(self, path: Path, program: Program, told: Callable[[int], None]) -> None:
        """``told`` is told how many bytes have been written."""
        with path.open("wb") as file:
            file.write(self._program)
            base = len(self._program)
            base += -base % _SEGMENT_ALIGNMENT
            for (start, size), parts in zip(self._places, self._segments, strict=True):
                file.write(bytes(base + start - file.tell()))
                for part in parts:
                    before = file.tell()
                    for block in part.make(program):
                        file.write(block)
                        told(file.tell())
                    assert file.tell() - before == part.size
                assert file.tell() == base + start + size
