"""From a PyTorch module to a program file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from satchel.backends import DEFAULT
from satchel.backends.target import Target
from satchel.errors import ConfigError
from satchel.exporter.module_graph import prepare_graph_export
from satchel.exporter.module_options import LEAST_SNR, ModuleOptions
from satchel.exporter.pipeline import Export
from satchel.progress import Progress, usual_progress
from satchel.torch.capture import capture
from satchel.torch.importer import ImportedModule, import_program


def prepare_module_export(
    module: Any,
    example_inputs: Sequence[Any],
    options: ModuleOptions,
    *,
    name: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    calibration: Any = None,
    progress: Progress | None = None,
    tokenizer: bytes = b"",
) -> Export:
    """A module's export, which has been checked and can be planned or run."""
    captured = capture(module, example_inputs, kwargs, dynamic_shapes)
    own = module.parameters() if hasattr(module, "parameters") else ()
    imported = import_program(captured)
    return prepare_graph_export(
        imported.graph,
        options,
        coded=imported.coded,
        name=name or type(module).__name__.lower(),
        parameters=sum(int(p.numel()) for p in own),
        source="pytorch",
        calibration=None if calibration is None else _flat(calibration, imported),
        progress=progress or usual_progress(),
        tokenizer=tokenizer,
    )


def _flat(examples: Any, imported: ImportedModule) -> Iterator[Any]:
    """Examples to calibrate on in the form of the module's arguments, as its inputs in a row.

    Those without a seed for random numbers each get another one.
    """
    for number, one in enumerate(examples):
        example = one
        if isinstance(one, (tuple, list)):
            leaves = [leaf for leaf in pytree.tree_leaves(one) if leaf is not None]
            arrays = all(isinstance(leaf, (torch.Tensor, np.ndarray)) for leaf in leaves)
            example = leaves if arrays else list(one)
        elif not isinstance(one, Mapping):
            example = [one]
        if imported.seed and isinstance(example, Mapping):
            example = {imported.seed: np.int64(number), **example}
        elif imported.seed and len(example) == len(imported.input_names) - 1:
            example = [*example, np.int64(number)]
        yield example


def export_module(
    module: Any,
    example_inputs: Sequence[Any],
    output: str | Path | None = None,
    *,
    recipe: str | None = None,
    target: str | Target | Sequence[str | Target] = DEFAULT,
    overrides: Mapping[str, str] | None = None,
    calibration: Any = None,
    observer: str = "minmax",
    least_snr: float = LEAST_SNR,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Export a ``torch.nn.Module``; ``example_inputs`` is a tuple as for ``torch.export.export``.

    Recipes: ``fp32``, ``fp16``, ``int8`` (static: ``calibration`` is a list of examples, each an
    input, a tuple of them as ``example_inputs``, or a dictionary of inputs by name; ``observer`` is
    ``minmax``, ``percentile`` or ``mse``; layers that 8 bits alone leave with less than
    ``least_snr`` dB stay in floats, and are listed), and those of language models, of which
    ``8a8w`` is int8 with activations rounded as they come.
    ``overrides`` gives some layers another one: ``{"features.0.*": "fp32"}``.

    ``target`` is the name of a chip, or a :class:`~satchel.backends.Target` with its own options;
    some take certain recipes only, and ``recipe`` is by default the target's usual one.

    Returns the program's path, by default one that tells model, target and recipe.
    """
    if isinstance(example_inputs, (str, bytes)) or not isinstance(example_inputs, Sequence):
        raise ConfigError(
            "example_inputs must be a tuple of tensors", "Write satchel.export(module, (x,))."
        )
    options = ModuleOptions(recipe, target, overrides or {}, observer, least_snr, metadata or {})
    job = prepare_module_export(
        module,
        example_inputs,
        options,
        name=name,
        kwargs=kwargs,
        dynamic_shapes=dynamic_shapes,
        calibration=calibration,
        progress=progress,
    )
    return job.run(job.output(output), overwrite, threads)
