"""Programs for the NPU as instances with methods, like those of the CPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.payload import read_manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.vendor import is_emulated, vendor_version
from satchel.errors import ExecutionError
from satchel.llm.session import ACCEPT_METHOD
from satchel.runtime.program import Instance, Method, Program
from satchel.sources import cache_folder

Array = NDArray[Any]
# Tokens, their position, the rows that are wanted (None: all) and a tree's parents, to logits.
Call = Callable[[Array, int, Array | None, Array | None], Array]
Keep = Callable[[Array, int], None]

EMULATOR = "emulator"


class NpuMethod(Method):
    """A method that is not run by the native core."""

    def __init__(self, call: Call, info: Mapping[str, Any]) -> None:
        self._call = call
        self.describe(info)

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[Array]:
        given = dict(zip(self.inputs, self.convert(*arrays, **named), strict=True))
        position = given["position"]
        if position.shape != (1,) or given["tokens"].ndim != 1:
            raise ExecutionError(f"{self.name} takes tokens [n] and a position [1]")
        rows, parents = given.get("rows"), given.get("parents")
        return [self._call(given["tokens"], int(position[0]), rows, parents)]


class NpuAccept(Method):
    """Leaves in the cache what was accepted of a tree."""

    def __init__(self, keep: Keep, info: Mapping[str, Any]) -> None:
        self._keep = keep
        self.describe(info)

    def run(self, *arrays: ArrayLike, **named: ArrayLike) -> list[Array]:
        rows, position = self.convert(*arrays, **named)
        if position.shape != (1,) or rows.ndim != 1:
            raise ExecutionError(f"{self.name} takes rows [n] and a position [1]")
        self._keep(rows, int(position[0]))
        return []


class _NpuProgram(Instance):
    """An instance whose methods are calls of something else than the native core."""

    # Only one method's results are known to be the same for a token alone and in a block.
    same_bits_in_blocks = False

    def __init__(self, program: Program, kernels: str) -> None:
        self.program, self.threads, self.kernels = program, 1, kernels

    def method(self, name: str) -> Method:
        info = next((m for m in self.program.methods if m["name"] == name), None)
        if info is None:
            raise ExecutionError(f"there is no method {name!r} in {self.program.path}")
        if name == ACCEPT_METHOD:
            return NpuAccept(self._keep, info)
        return NpuMethod(partial(self._call, name), info)

    def _call(
        self, name: str, tokens: Array, position: int, rows: Array | None, parents: Array | None
    ) -> Array:
        raise NotImplementedError

    def _keep(self, rows: Array, position: int) -> None:
        raise NotImplementedError


class NpuInstance(_NpuProgram):
    """Runs on the NPU of this machine, or on the emulator, in a process of its own."""

    def __init__(self, program: Program) -> None:
        manifest = read_manifest(program)
        where = EMULATOR if is_emulated() else find_chip(manifest.target).name
        super().__init__(program, f"qnn {where}")
        self._child = Child()
        weakref.finalize(self, self._child.close)
        folder = cache_folder() / "qnn" / f"{program.checksum[:24]}-{vendor_version()}"
        message = {
            "program": str(program.path.absolute()),
            "folder": str(folder),
            "target": manifest.target,
        }
        self._child.ask("load", message)

    def _call(
        self, name: str, tokens: Array, position: int, rows: Array | None, parents: Array | None
    ) -> Array:
        given = {"tokens": tokens, "rows": rows, "parents": parents}
        arrays = {key: array for key, array in given.items() if array is not None}
        _, results = self._child.ask("call", {"method": name, "position": position}, arrays)
        return np.array(results["logits"])

    def _keep(self, rows: Array, position: int) -> None:
        self._child.ask("keep", {"position": position}, {"rows": rows})


class ReferenceNpuInstance(_NpuProgram):
    """Runs in the reference what the NPU should compute: the quantise-dequantise phase."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, "reference")
        self._runner = PreparedProgram.of(program).reference_runner()

    def _call(
        self, name: str, tokens: Array, position: int, rows: Array | None, parents: Array | None
    ) -> Array:
        return self._runner.run(name, tokens, position, rows, parents)

    def _keep(self, rows: Array, position: int) -> None:
        self._runner.keep(rows, position)
