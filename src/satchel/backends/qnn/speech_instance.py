"""A program that hears, on the NPU: windows and texts there, times of words on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.called import CalledMethod
from satchel.backends.qnn.instance import CompiledProgram, NpuInstance, ReferenceNpuInstance
from satchel.backends.qnn.speech_runner import CLOSE, FORK
from satchel.errors import ExecutionError
from satchel.runtime.program import Instance, Method, Program
from satchel.speech.whisper import ALIGN, DECODE, ENCODE, HEAR

Array = NDArray[Any]


class _Hearing(CompiledProgram):
    """``encode`` and ``decode`` are calls of the NPU, which holds the window and all texts.

    ``align`` runs on the CPU, which makes its own keys and values of what the encoder gave.
    """

    def _begin(self, threads: int = 0) -> None:
        self._cpu = Instance(self.program, threads)
        self._audio: Array | None = None  # of the window; None: the CPU has heard it
        self._next, self._open = 1, set[int]()

    def method(self, name: str) -> Method:
        if name in (ENCODE, DECODE):
            return CalledMethod(partial(self._call, name), self._infos[name])
        if name == ALIGN:
            return CalledMethod(self._align, self._infos[name])
        raise ExecutionError(f"there is no method {name!r} in {self.program.path}")

    def _call(self, name: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        made = self._run(name, inputs)
        if name == ENCODE:
            self._audio = made["audio"]
        return made

    def _align(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The tokens are a text of their own, from its first one on."""
        if self._audio is not None:
            self._cpu.method(HEAR).run(self._audio)
            self._audio = None
        method, sequence = self._cpu.method(ALIGN), self._cpu.open_sequence()
        try:
            given = {**inputs, "sequence": np.full_like(inputs["sequence"], sequence)}
            made = method.run(*(given[name] for name in method.inputs))
        finally:
            self._cpu.close_sequence(sequence)
        return dict(zip(method.outputs, made, strict=True))

    def open_sequence(self) -> int:
        self._next += 1
        self._open.add(self._next)
        return self._next

    def fork_sequence(self, sequence: int, rows: int) -> int:
        made = self.open_sequence()
        self._run(FORK, {"sequence": np.array([sequence, made], np.int32)})
        return made

    def truncate_sequence(self, sequence: int, rows: int) -> None:
        """Slots behind ``rows`` are hidden until they are written again."""

    def close_sequence(self, sequence: int) -> None:
        if sequence not in self._open:
            raise ExecutionError(f"there is no text {sequence}")
        self._open.remove(sequence)
        self._run(CLOSE, {"sequence": np.array([sequence], np.int32)})


class NpuSpeechInstance(_Hearing, NpuInstance):
    def __init__(self, program: Program, threads: int = 0) -> None:
        super().__init__(program)
        self._begin(threads)


class ReferenceNpuSpeechInstance(_Hearing, ReferenceNpuInstance):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._begin()
