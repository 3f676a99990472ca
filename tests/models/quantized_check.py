"""A quantised program against the reference's run of the same graphs and stored weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.exporter import ExportJob, ExportOptions
from satchel.graph.reference import ReferenceInterpreter
from satchel.runtime.program import Program

Logits = NDArray[np.float32]


class QuantizedPair:
    """A program, and the interpreter over the graphs that it was written from."""

    def __init__(self, source: Path, output: Path, **options: Any) -> None:
        job = ExportJob(source, ExportOptions(**options))
        self.graphs = {graph.name: graph for graph in job.graphs}
        self.program = Program(job.run(output))
        self.encodings = {w["name"]: (w["encoding"], w["group"]) for w in self.program.weights}
        self._instance = self.program.instance(threads=2)
        self._reference = ReferenceInterpreter(lambda weight: self.program.weight(weight.name))

    def native(self, method: str, **inputs: Any) -> Logits:
        return self._instance.method(method).run(**inputs)[0]

    def reference(self, method: str, **inputs: Any) -> Logits:
        arrays = {name: np.asarray(value, np.int32) for name, value in inputs.items()}
        result: Logits = self._reference.run(self.graphs[method], arrays)["logits"]
        return result

    def both(self, tokens: NDArray[np.int32], prefill: int) -> tuple[Logits, Logits]:
        """Logits after every token, native and reference: one block, then one by one."""
        results = []
        for run in (self.native, self.reference):
            block = {"tokens": tokens[:prefill], "position": [0], "rows": np.arange(prefill)}
            rows = [run("prefill_forward", **block)]
            for at in range(prefill, len(tokens)):
                rows.append(run("kv_forward", tokens=tokens[at : at + 1], position=[at]))
            results.append(np.concatenate(rows))
        return results[0], results[1]
