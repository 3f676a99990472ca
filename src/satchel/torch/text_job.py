"""From a folder of transformers to a program that makes vectors of texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from satchel.backends import DEFAULT
from satchel.backends.target import Target
from satchel.errors import ConfigError, InputError
from satchel.exporter.module_options import LEAST_SNR, ModuleOptions
from satchel.exporter.pipeline import Export
from satchel.files import lines_of
from satchel.progress import Progress
from satchel.text.encoder import TASK
from satchel.torch.job import prepare_module_export
from satchel.torch.text_models import TextModel

USUAL_SAMPLES = 32


def prepare_text_export(
    folder: str | os.PathLike[str],
    options: ModuleOptions,
    *,
    task: str = TASK,
    pooling: str | None = None,
    context: int | None = None,
    calibrate: str | os.PathLike[str] | None = None,
    calibrate_samples: int | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> Export:
    """A folder's export, which has been checked and can be planned or run."""
    if task != TASK:
        raise ConfigError(
            f"there is no task {task!r} for folders", f"{TASK} is one; modules take any model."
        )
    if calibrate is not None and not options.needs_examples:
        raise ConfigError(f"calibrate is for the recipe int8, not {options.recipe_name}")
    model = TextModel(folder, pooling, context)
    examples = None
    if calibrate is not None:
        examples = _examples(model, Path(calibrate), calibrate_samples or USUAL_SAMPLES)
    metadata = {
        "architecture": f"transformers:{model.architecture}",
        "text": model.rules.to_dict(),
        **options.metadata,
    }
    return prepare_module_export(
        model.module,
        model.example(),
        replace(options, metadata=metadata),
        name=name or Path(folder).resolve().name,
        dynamic_shapes=model.dynamic_shapes(),
        calibration=examples,
        progress=progress,
        tokenizer=model.tokenizer.encode(),
    )


def export_text(
    folder: str | os.PathLike[str],
    output: str | Path | None = None,
    *,
    task: str = TASK,
    pooling: str | None = None,
    context: int | None = None,
    recipe: str | None = None,
    target: str | Target | Sequence[str | Target] = DEFAULT,
    overrides: Mapping[str, str] | None = None,
    calibrate: str | os.PathLike[str] | None = None,
    calibrate_samples: int | None = None,
    observer: str = "minmax",
    least_snr: float = LEAST_SNR,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Export an encoder of transformers with its tokenizer and pooling; returns the path.

    ``pooling`` is ``mean``, ``cls``, ``max`` or ``last``, by default what the folder says;
    ``context`` the most tokens of a text. For the recipe ``int8``, ``calibrate`` is a file of
    texts, one on each line.
    """
    options = ModuleOptions(recipe, target, overrides or {}, observer, least_snr, metadata or {})
    job = prepare_text_export(
        folder,
        options,
        task=task,
        pooling=pooling,
        context=context,
        calibrate=calibrate,
        calibrate_samples=calibrate_samples,
        name=name,
        progress=progress,
    )
    return job.run(job.output(output), overwrite, threads)


def _examples(model: TextModel, file: Path, count: int) -> list[Any]:
    """Lines of a file as the model's inputs, each alone."""
    from tokenizers import Tokenizer

    try:
        lines = lines_of(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}", "Give a text file in UTF-8.") from None
    tokenizer = Tokenizer.from_str(model.tokenizer)
    tokenizer.enable_truncation(model.rules.max_length)
    texts = [line for line in lines if line.strip()][:count]
    ids = [np.array([tokenizer.encode(text).ids], np.int64) for text in texts]
    return [(one, np.ones_like(one)) for one in ids]
