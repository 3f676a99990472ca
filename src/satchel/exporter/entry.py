"""``satchel.export``: one name for checkpoints and for PyTorch modules."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

from satchel.backends import Target
from satchel.exporter.checks import is_folder
from satchel.exporter.options import ExportOptions
from satchel.exporter.packages import onnx_package, torch_package
from satchel.exporter.speech import prepare_any_export
from satchel.files import refuse_existing
from satchel.options import options_of
from satchel.sources.progress import Progress

PathLike = str | os.PathLike[str]
Targets = str | Target | Sequence[str | Target]


class Module(Protocol):
    """A ``torch.nn.Module``."""

    def parameters(self) -> Iterator[Any]: ...


@overload
def export(
    source: PathLike,
    output: PathLike | None = None,
    *,
    checkpoint: PathLike | None = ...,
    params: PathLike | None = ...,
    tokenizer: PathLike | None = ...,
    target: Targets = ...,
    recipe: str | None = ...,
    group_size: int | None = ...,
    embedding: tuple[int, int] | None = ...,
    head_bits: int | None = ...,
    kv_bits: int | None = ...,
    activation_bits: int | None = ...,
    overrides: Mapping[str, str] = ...,
    rounding: str | None = ...,
    calibrate: str | None = ...,
    calibrate_limit: int | None = ...,
    calibrate_samples: int | None = ...,
    calibrate_length: int | None = ...,
    rotate: bool = ...,
    rotate_online: bool = ...,
    embeddings: bool = ...,
    pooling: str | None = ...,
    mode: str = ...,
    prefill_ar_len: int | None = ...,
    context: int | None = ...,
    ngram: int | None = ...,
    window: int | None = ...,
    gcap: int | None = ...,
    metadata: Mapping[str, Any] = ...,
    lora: PathLike | Sequence[PathLike] = ...,
    adapters: Mapping[str, PathLike] = ...,
    ignore_config: str | Sequence[str] = ...,
    preq_mode: str | None = ...,
    preq_group_size: int | None = ...,
    preq_embedding: tuple[int, int] | None = ...,
    lora_rank: int | None = ...,
    overwrite: bool = ...,
    threads: int = ...,
    progress: Progress | None = ...,
) -> Path: ...


@overload
def export(
    source: Module,
    example_inputs: Sequence[Any],
    output: PathLike | None = None,
    *,
    target: Targets = ...,
    recipe: str | None = ...,
    overrides: Mapping[str, str] = ...,
    observer: str = ...,
    least_snr: float = ...,
    metadata: Mapping[str, Any] = ...,
    calibration: Any = ...,
    kwargs: Mapping[str, Any] | None = ...,
    dynamic_shapes: Any = ...,
    name: str | None = ...,
    overwrite: bool = ...,
    threads: int = ...,
    progress: Progress | None = ...,
) -> Path: ...


def export(source: Any, *arguments: Any, **options: Any) -> Path:
    """Export a checkpoint, or a PyTorch module with example inputs; returns the program's path.

    ``export(checkpoint, output, recipe=…)`` takes a path, a name that ``satchel models`` lists,
    or ``hf:ORG/REPO``, and the options of :class:`~satchel.exporter.ExportOptions`.
    ``export(module, example_inputs, output, recipe=…)`` takes a ``torch.nn.Module`` and the
    options of ``satchel.torch.job.export_module``; it needs ``pip install 'satchel[torch]'``.
    ``export("model.onnx", output, recipe=…)`` takes those of ``satchel.onnx.job.export_onnx``,
    and ``export("model.pt2", output, recipe=…)`` what ``torch.export.save`` has written.
    ``export(folder, output, task="feature-extraction")`` takes an encoder of transformers, and
    the options of ``satchel.torch.text_job.export_text``.
    By default the file's name tells model, target, recipe, and what else was chosen.

    >>> export("tiny-llama", recipe="8da4w", group_size=32, context=128)
    PosixPath('tiny-llama-cpu-8da4w-g32-c128.satchel')
    """
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".onnx"):
        with onnx_package():
            from satchel.onnx.job import export_onnx
        return export_onnx(Path(source), *arguments, **options)
    if isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".pt2"):
        return _export_saved(Path(source), *arguments, **options)
    if isinstance(source, (str, os.PathLike)) and options.get("task"):
        with torch_package():
            from satchel.torch.text_job import export_text
        return export_text(source, *arguments, **options)
    if isinstance(source, (str, os.PathLike)):
        return _export_checkpoint(source, *arguments, **options)
    with torch_package():
        from satchel.torch.job import export_module
    return export_module(source, *arguments, **options)


def _export_saved(
    path: Path, output: PathLike | None = None, *, name: str | None = None, **options: Any
) -> Path:
    with torch_package():
        from satchel.torch.job import export_module
        from satchel.torch.saved_program import load_saved_program
    program = load_saved_program(path)
    place = None if output is None else Path(output)
    return export_module(program, (), place, name=name or path.stem, **options)


def _export_checkpoint(
    source: PathLike,
    output: PathLike | None = None,
    *,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
    lora: PathLike | Sequence[PathLike] = (),
    adapters: Mapping[str, PathLike] | None = None,
    ignore_config: str | Sequence[str] = (),
    **options: Any,
) -> Path:
    known = {each.name for each in options_of(ExportOptions)}
    unknown = [name for name in options if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], [*known, "overwrite", "threads"], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"export() got an unexpected argument {unknown[0]!r}{hint}")
    if output is not None and not is_folder(output):
        refuse_existing(Path(output), overwrite)  # before the work, and not after it
    for name in ("checkpoint", "params", "tokenizer"):
        if options.get(name) is not None:
            options[name] = os.fspath(options[name])
    folders = {name: os.fspath(folder) for name, folder in (adapters or {}).items()}
    merged = [lora] if isinstance(lora, (str, os.PathLike)) else lora
    ignored = [ignore_config] if isinstance(ignore_config, str) else ignore_config
    chosen = ExportOptions(
        lora=tuple(os.fspath(folder) for folder in merged),
        adapters=folders,
        ignore_config=tuple(ignored),
        **options,
    )
    job = prepare_any_export(source, chosen, progress)
    return job.run(job.output(output), overwrite, threads)
