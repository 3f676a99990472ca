"""Programs for the NPU as instances with methods, like those of the CPU."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.called import CalledMethod
from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.first_run import compiling_told
from satchel.backends.qnn.manifest import Manifest, damaged
from satchel.backends.qnn.payload import read_manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.profile import Cycles
from satchel.backends.qnn.vendor import is_emulated, vendor_version
from satchel.errors import ExecutionError
from satchel.program.names import ACCEPT_METHOD, KV_METHOD, LOOKAHEAD_METHOD, PREFILL_METHOD
from satchel.progress import watched_progress
from satchel.runtime.program import Instance, Method, OneSequence, Program
from satchel.sources import cache_folder
from satchel.speech.whisper import ALIGN, HEAR

Array = NDArray[Any]

EMULATOR = "emulator"


class CompiledProgram(OneSequence, Instance):
    """An instance whose methods are calls of something else than the native core."""

    # Only one method's results are known to be the same for a token alone and in a block.
    other_bits_in_blocks = (
        "the NPU may give a token other bits alone than in a block of another method"
    )

    def __init__(self, program: Program, manifest: Manifest, kernels: str) -> None:
        self.program, self.threads, self.kernels = program, 1, kernels
        callable_ = set(manifest.methods) | {ACCEPT_METHOD}
        if LOOKAHEAD_METHOD in manifest.methods:
            callable_.add(KV_METHOD)
        self._infos = {m["name"]: m for m in program.methods if "." not in m["name"]}
        if set(self._infos) - callable_ - {ALIGN, HEAR}:  # these two are the CPU's
            raise damaged("the NPU's manifest lacks methods that the program has")

    def method(self, name: str) -> Method:
        if name not in self._infos:
            raise ExecutionError(
                f"there is no method {name!r} in {self.program.path}",
                f"It has {', '.join(self._infos)}.",
            )
        return CalledMethod(partial(self._run, name), self._infos[name])

    def _run(self, name: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        raise NotImplementedError


class NpuInstance(CompiledProgram):
    """Runs on the NPU of this machine, or on the emulator, in a process of its own."""

    def __init__(self, program: Program) -> None:
        manifest = read_manifest(program)
        self.emulated = is_emulated()
        where = EMULATOR if self.emulated else find_chip(manifest.target).name
        super().__init__(program, manifest, f"qnn {where}")
        self._child = Child()
        weakref.finalize(self, self._child.close)
        folder = cache_folder() / "qnn" / f"{program.checksum[:24]}-{vendor_version()}"
        self._profiles: tempfile.TemporaryDirectory[str] | None = None
        self._message = message = {
            "program": str(program.path.absolute()),
            "folder": str(folder),
            "target": program.target,
        }
        if self.emulated:
            with compiling_told(manifest, folder, watched_progress()):
                self._child.ask("load", message)
        else:
            self._child.ask("load", message)
        # What the emulator gave when it was compiled is tried again where a chip computes it.
        if manifest.same_bits and (self.emulated or self.has_same_bits()):
            self.other_bits_in_blocks = ""

    def has_same_bits(self) -> bool:
        """Whether a first token has the same bits alone and in a block, here and now."""
        one = {"tokens": np.ones(1, np.int32), "position": np.zeros(1, np.int32)}
        one |= {"sequence": np.zeros(1, np.int32), "rows": np.zeros(1, np.int32)}
        alone, block = (self._run(name, one)["logits"] for name in (KV_METHOD, PREFILL_METHOD))
        return np.array_equal(alone, block)

    def _run(self, name: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return self._child.ask("call", {"method": name}, inputs)[1]

    def start_profile(self) -> None:
        """Count the cycles of every op; the first time, all is loaded anew and caches are empty."""
        if self._profiles is None:
            self._profiles = tempfile.TemporaryDirectory()
            self._child.ask("load", {**self._message, "profile": self._profiles.name})
        self._child.ask("profile", {})  # what came before does not count

    def take_cycles(self) -> Cycles:
        """By op: calls and cycles since :meth:`start_profile`."""
        ops = self._child.ask("profile", {})[0]["ops"]
        return {op: (calls, cycles) for op, (calls, cycles) in ops.items()}


class ReferenceNpuInstance(CompiledProgram):
    """Runs in the reference what the NPU should compute: the quantise-dequantise phase."""

    def __init__(self, program: Program) -> None:
        manifest = read_manifest(program)
        super().__init__(program, manifest, "reference")
        self._runner = PreparedProgram.of(program, manifest).reference_runner()

    def _run(self, name: str, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return self._runner.run(name, inputs)
