"""From an ONNX file to a program file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from satchel.backends import DEFAULT
from satchel.backends.target import Target
from satchel.exporter.module_graph import prepare_graph_export
from satchel.exporter.module_options import LEAST_SNR, ModuleOptions
from satchel.exporter.pipeline import Export
from satchel.onnx.importer import import_model, read_model
from satchel.progress import Progress, usual_progress


def prepare_onnx_export(
    path: Path,
    options: ModuleOptions,
    *,
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
    calibration: Any = None,
    progress: Progress | None = None,
) -> Export:
    """An ONNX model's export, which has been checked and can be planned or run."""
    model = read_model(path)
    parameters = sum(math.prod(t.dims) for t in model.graph.initializer)
    return prepare_graph_export(
        import_model(model, sizes or {}),
        options,
        name=name or path.stem,
        parameters=parameters,
        source="onnx",
        calibration=calibration,
        progress=progress or usual_progress(),
    )


def export_onnx(
    path: Path,
    output: str | Path | None = None,
    *,
    recipe: str | None = None,
    target: str | Target | Sequence[str | Target] = DEFAULT,
    overrides: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    calibration: Any = None,
    observer: str = "minmax",
    least_snr: float = LEAST_SNR,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Export an ONNX file, with the recipes of modules; returns the program's path.

    ``sizes`` gives those that the model only names, as in ``{"batch": 4, "sequence": 128}``. For
    the recipe ``int8``, ``calibration`` is a list of examples, each an input or a tuple of them.
    """
    options = ModuleOptions(recipe, target, overrides or {}, observer, least_snr, metadata or {})
    job = prepare_onnx_export(
        path, options, sizes=sizes, name=name, calibration=calibration, progress=progress
    )
    return job.run(job.output(output), overwrite, threads)
