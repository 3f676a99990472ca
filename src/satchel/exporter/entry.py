"""``satchel.export``: one name for checkpoints and for PyTorch modules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError
from satchel.exporter.job import export as export_checkpoint


def export(
    source: Any,
    output: str | os.PathLike[str] | Sequence[Any] | None = None,
    *arguments: Any,
    **options: Any,
) -> Path:
    """Export a checkpoint, or a PyTorch module with example inputs; returns the program's path.

    ``export(checkpoint, output, recipe=…)`` takes a path, a name that ``satchel models`` lists,
    or ``hf:ORG/REPO``, and the options of :func:`satchel.exporter.job.export`.
    ``export(module, example_inputs, output, recipe=…)`` takes a ``torch.nn.Module`` and the
    options of ``satchel.torch.job.export_module``; it needs ``pip install 'satchel[torch]'``.

    >>> export("tiny-llama", "tiny.satchel", recipe="8da4w", group_size=32, context=128)
    PosixPath('tiny.satchel')
    """
    if isinstance(source, (str, os.PathLike)):
        return export_checkpoint(source, output, *arguments, **options)  # type: ignore[arg-type]
    try:
        from satchel.torch.job import export_module
    except ImportError as error:
        raise ConfigError(
            f"exporting a module needs torch ({error})", "pip install 'satchel[torch]'."
        ) from None
    return export_module(source, output, *arguments, **options)  # type: ignore[arg-type]
