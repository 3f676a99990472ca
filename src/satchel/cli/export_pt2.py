"""satchel export model.pt2: what torch.export.save wrote becomes one program file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from satchel.cli.export_vision import check_choices, check_free, run_module_job
from satchel.errors import ConfigError
from satchel.progress import ProgressBar

SUFFIX = ".pt2"


def export_pt2_file(
    arguments: argparse.Namespace, source: str, output: str | None, choices: dict[str, Any]
) -> None:
    from satchel.exporter.module_options import ModuleOptions
    from satchel.exporter.packages import torch_package

    with torch_package():
        from satchel.torch.job import prepare_module_export
        from satchel.torch.saved_program import load_saved_program
    check_choices(source, choices)
    options = ModuleOptions(**{k: v for k, v in choices.items() if not k.startswith("calibrate")})
    if options.needs_examples or any(k.startswith("calibrate") for k in choices):
        raise ConfigError(
            "a .pt2 file is calibrated with arrays of its inputs",
            'From Python: satchel.export("model.pt2", recipe="int8", calibration=[…]).',
        )
    check_free(arguments, output)
    bar = ProgressBar()
    path = Path(source)
    job = prepare_module_export(load_saved_program(path), (), options, name=path.stem, progress=bar)
    run_module_job(arguments, job, output, bar)
