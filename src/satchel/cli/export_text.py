"""satchel export FOLDER --task feature-extraction: an encoder becomes one program file."""

from __future__ import annotations

import argparse
from typing import Any

from satchel.cli.export_vision import check_choices, check_free, run_module_job
from satchel.progress import ProgressBar
from satchel.text.encoder import TASK

_OWN = {"pooling", "context", "calibrate", "calibrate_samples"}


def add_text_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for folders of transformers")
    group.add_argument(
        "--task",
        type=_task,
        metavar=TASK,
        help="an encoder (BERT, MPNet, ModernBERT, …) with its tokenizer and pooling (--pooling "
        "mean, cls, max or last), for satchel embed and serve; --context: tokens of a text",
    )


def _task(name: str) -> str:
    """The one that there is; those of lm-eval, which the guides name so, are for other options."""
    if name != TASK:
        raise argparse.ArgumentTypeError(
            f"an export's task is {TASK}; for {name} of lm-eval write --calibrate task:{name}, or "
            f"satchel eval FILE --tasks {name}"
        )
    return name


def export_text_folder(
    arguments: argparse.Namespace, source: str, output: str | None, choices: dict[str, Any]
) -> None:
    from satchel.exporter.module_options import ModuleOptions
    from satchel.exporter.packages import torch_package
    from satchel.sources import pull

    with torch_package():
        from satchel.torch.text_job import prepare_text_export
    own = {name: choices.pop(name) for name in sorted(_OWN & set(choices))}
    check_choices(source, choices)
    options = ModuleOptions(**choices)
    check_free(arguments, output)
    bar = ProgressBar()
    folder = pull(source, bar)
    job = prepare_text_export(folder, options, task=arguments.task, progress=bar, **own)
    run_module_job(arguments, job, output, bar)
