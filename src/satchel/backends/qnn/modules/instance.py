"""A module's program on the NPU, on its emulator or in the reference."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.instance import EMULATOR
from satchel.backends.qnn.modules.place import AFTER, BEFORE, METHOD
from satchel.backends.qnn.modules.prepared import PreparedModule
from satchel.backends.qnn.payload import extract, read_manifest
from satchel.backends.qnn.vendor import is_emulated
from satchel.errors import ExecutionError
from satchel.runtime.program import Instance, Method, Program

Array = NDArray[Any]
Execute = Callable[[Mapping[str, Array]], Mapping[str, Array]]  # codes in, codes out


class ModuleMethod(Method):
    """``forward``: what the CPU does first, the NPU's part, and what the CPU does last."""

    def __init__(self, prepared: PreparedModule, execute: Execute, host: Instance | None) -> None:
        program = prepared.program
        self.describe(next(m for m in program.methods if m["name"] == METHOD))
        self._prepared, self._execute = prepared, execute
        parts = [name for name in (BEFORE, AFTER) if program.has_method(name)]
        self._host = {name: host.method(name) for name in parts} if host else {}

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[Array]:
        known = dict(zip(self.inputs, self.convert(*arrays, **named), strict=True))
        for value, info in zip(known.items(), self.info["inputs"], strict=True):
            name, array = value
            if array.shape != tuple(info["shape"]):
                raise ExecutionError(
                    f"the input {name!r} must have the shape {list(info['shape'])}, not "
                    f"{list(array.shape)}"
                )
        self._on_host(BEFORE, known)
        results = self._execute(self._prepared.codes(known))
        encodings = self._prepared.encodings
        known |= {name: encodings[name].dequantize(a) for name, a in results.items()}
        self._on_host(AFTER, known)
        return [np.array(known[name]) for name in self.outputs]

    def _on_host(self, name: str, known: dict[str, Array]) -> None:
        method = self._host.get(name)
        if method is not None:
            made = method.run(*(known[source] for source in method.inputs))
            known |= dict(zip(method.outputs, made, strict=True))


class _ModuleInstance(Instance):
    """An instance of one method."""

    def __init__(self, program: Program, kernels: str) -> None:
        self.program, self.threads, self.kernels = program, 1, kernels
        self.manifest = read_manifest(program)
        self.prepared = PreparedModule.of(program, self.manifest)
        parts = [name for name in (BEFORE, AFTER) if program.has_method(name)]
        self._host = Instance(program) if parts else None
        if self._host:
            self.threads = self._host.threads

    def method(self, name: str) -> Method:
        if name != METHOD:
            raise ExecutionError(f"there is no method {name!r} in {self.program.path}")
        return ModuleMethod(self.prepared, self._run, self._host)

    def _run(self, codes: Mapping[str, Array]) -> Mapping[str, Array]:
        raise NotImplementedError


class NpuModuleInstance(_ModuleInstance):
    """Runs on the NPU of this machine, or on the emulator, in a process of its own."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, "")
        target = self.manifest.target
        self.kernels = f"qnn {EMULATOR if is_emulated() else find_chip(target).name}"
        self._child = Child()
        weakref.finalize(self, self._child.close)
        with tempfile.TemporaryDirectory() as folder:
            extract(program, Path(folder))
            model = Path(folder) / self.manifest.model_file(0, METHOD)
            self._child.open([(METHOD, model)], target)

    def _run(self, codes: Mapping[str, Array]) -> Mapping[str, Array]:
        return self._child.run(METHOD, codes)


class ReferenceModuleInstance(_ModuleInstance):
    """Runs in the reference what the NPU should compute."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, "reference")
        self._reference = self.prepared.reference()

    def _run(self, codes: Mapping[str, Array]) -> Mapping[str, Array]:
        return self._reference.run(codes)
