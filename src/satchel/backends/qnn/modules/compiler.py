"""Compiles a module's program for the NPU, in a process of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.child import Child
from satchel.backends.qnn.chips import Chip
from satchel.backends.qnn.compiler import LEAST_AGREEMENT
from satchel.backends.qnn.modules.calibrate import calibrate_module
from satchel.backends.qnn.modules.place import BEFORE, METHOD
from satchel.backends.qnn.modules.prepared import PreparedModule
from satchel.backends.qnn.payload import MANIFEST, Manifest
from satchel.backends.qnn.self_check import cosine
from satchel.backends.qnn.vendor import vendor_version
from satchel.errors import BackendError, ConfigError
from satchel.runtime.program import Instance, Program

Array = NDArray[Any]
Example = Mapping[str, Array]


@dataclass
class ModuleCompiler:
    """``compile`` turns a module's program into the files that the NPU needs."""

    program: Program
    chip: Chip
    bits: int
    observer: str
    least_snr: float
    examples: Sequence[Example]
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    noise: dict[str, float] = field(init=False, default_factory=dict)  # dB by layer
    wide: list[str] = field(init=False, default_factory=list)  # layers in 16 bits

    def compile(self, folder: Path) -> dict[str, Path]:
        """The files by name, ready to be put into a program."""
        prepared = PreparedModule(self.program, self.bits)
        inputs = [self._passed(prepared, example) for example in self.examples]
        self.progress("Measuring ranges", 0, 1)
        calibrated = calibrate_module(
            prepared.float_graph(),
            lambda weight: prepared.weights.array(weight.name),
            inputs,
            self.observer,
            self.bits,
            self.least_snr,
        )
        prepared.use(calibrated.encodings)
        self.noise, self.wide = calibrated.noise, calibrated.wide
        self.progress("Measuring ranges", 1, 1)
        manifest = Manifest(
            self.chip.target,
            vendor_version(),
            self.bits,
            {METHOD: 1},
            [],
            False,
            calibrated.encodings,
        )
        self.progress("Compiling", 0, 1)
        manifest.shards.append(self._compile(prepared, inputs[0], folder, manifest))
        self.progress("Compiling", 1, 1)
        (folder / MANIFEST).write_text(manifest.to_json())
        return {path.name: path for path in folder.iterdir()}

    def _passed(self, prepared: PreparedModule, example: Example) -> Example:
        """What the NPU's part is given, computed by what comes before it."""
        known = dict(example)
        if BEFORE in prepared.graphs:
            method = Instance(self.program).method(BEFORE)
            results = method.run(*(known[name] for name in method.inputs))
            known |= dict(zip(method.outputs, results, strict=True))
        return {v.name: known[v.name] for v in prepared.npu.inputs}

    def _compile(
        self, prepared: PreparedModule, example: Example, folder: Path, manifest: Manifest
    ) -> dict[str, Any]:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=folder.parent) as work, Child() as child:
            source = prepared.write_model(Path(work))
            size = sum(path.stat().st_size for path in Path(work).iterdir())
            if size > self.chip.context_limit:
                raise ConfigError(
                    f"the module takes {size / 1e9:.1f} GB, and a context of {self.chip.name} "
                    f"holds {self.chip.context_limit / 1e9:.1f} GB",
                    "Export it for cpu, or in parts.",
                )
            model = folder / manifest.model_file(0, METHOD)
            answer = child.compile([(METHOD, source, model)], self.chip.target)
            seconds = time.perf_counter() - started
            checked = self._check(prepared, example, child)
        files = sorted(path.name for path in folder.iterdir())
        binaries = [folder / name for name in files if name.endswith(".bin")]
        return {
            "files": files,
            "binary_bytes": sum(path.stat().st_size for path in binaries),
            "seconds": round(seconds, 2),
            "processor_seconds": round(answer["processor_s"], 2),
            "peak_memory_bytes": answer["peak_bytes"],
            **checked,
        }

    def _check(
        self, prepared: PreparedModule, example: Example, child: Child
    ) -> dict[str, float | int]:
        """Run one example where it was compiled, in the reference as rounded, and on the CPU.

        Compilers for some chips have been wrong without a word. ``agreement`` is the least cosine
        of an output between the first two, ``largest_steps`` by how many codes they differ at
        most, and ``rounding`` the least cosine between the last two.
        """
        codes = prepared.codes(example)
        expected = prepared.reference().run(codes)
        got = child.run(METHOD, codes)
        method = Instance(self.program).method(prepared.source)
        exact = dict(zip(method.outputs, method.run(**example), strict=True))
        agreements, roundings, steps = [], [], []
        for name, wanted in expected.items():
            numbers = [prepared.encodings[name].dequantize(a) for a in (got[name], wanted)]
            agreements.append(cosine(*numbers))
            roundings.append(cosine(numbers[1], exact[name]))
            steps.append(int(np.abs(got[name].astype(int) - wanted.astype(int)).max()))
        if min(agreements) < LEAST_AGREEMENT:
            raise BackendError(
                f"the module as compiled for {self.chip.name} computes something else than the "
                f"reference: the cosine between both is {min(agreements):.3f}",
                "Nothing was written. Another --recipe may compile well (16a8w has finer steps); "
                "please report the module and the chip.",
            )
        return {
            "agreement": round(min(agreements), 6),
            "largest_steps": max(steps),
            "rounding": round(min(roundings), 6),
        }
