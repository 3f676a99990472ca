"""``satchel.export``: one name for checkpoints and for PyTorch modules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from satchel.backends import DEFAULT, Target
from satchel.errors import ConfigError
from satchel.exporter.checkpoint import prepare_export
from satchel.exporter.options import ExportOptions
from satchel.sources.progress import Progress


def export(
    source: Any,
    output: str | os.PathLike[str] | Sequence[Any] | None = None,
    *arguments: Any,
    **options: Any,
) -> Path:
    """Export a checkpoint, or a PyTorch module with example inputs; returns the program's path.

    ``export(checkpoint, output, recipe=…)`` takes a path, a name that ``satchel models`` lists,
    or ``hf:ORG/REPO``, and the options of :func:`export_checkpoint`.
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


def export_checkpoint(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    target: str | Target | Sequence[str | Target] = DEFAULT,
    recipe: str | None = None,
    group_size: int | None = None,
    embedding: tuple[int, int] | None = None,
    head_bits: int | None = None,
    kv_bits: int | None = None,
    activation_bits: int | None = None,
    overrides: Mapping[str, str] | None = None,
    rounding: str | None = None,
    calibrate: str | None = None,
    calibrate_limit: int | None = None,
    rotate: bool = False,
    rotate_online: bool = False,
    mode: str = "hybrid",
    prefill_ar_len: int | None = None,
    context: int | None = None,
    ngram: int | None = None,
    window: int | None = None,
    gcap: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    lora: Sequence[str | os.PathLike[str]] = (),
    adapters: Mapping[str, str | os.PathLike[str]] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Export a checkpoint (a path, a name that ``satchel models`` lists, or ``hf:ORG/REPO``).

    Returns the program's path, by default one that tells model, target and recipe.

    >>> export_checkpoint("tiny-llama", recipe="8da4w", group_size=32, context=128)
    PosixPath('tiny-llama-cpu-8da4w-g32-c128.satchel')
    """
    options = ExportOptions(
        target=target,
        recipe=recipe,
        group_size=group_size,
        embedding=embedding,
        head_bits=head_bits,
        kv_bits=kv_bits,
        activation_bits=activation_bits,
        overrides=overrides or {},
        rounding=rounding,
        calibrate=calibrate,
        calibrate_limit=calibrate_limit,
        rotate=rotate,
        rotate_online=rotate_online,
        mode=mode,
        prefill_ar_len=prefill_ar_len,
        context=context,
        ngram=ngram,
        window=window,
        gcap=gcap,
        metadata=metadata or {},
        lora=tuple(os.fspath(folder) for folder in lora),
        adapters={name: os.fspath(folder) for name, folder in (adapters or {}).items()},
    )
    job = prepare_export(source, options, progress)
    return job.run(Path(output) if output else job.default_output, overwrite, threads)
