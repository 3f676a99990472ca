"""satchel export model.onnx: an ONNX model becomes one program file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from satchel.cli.export_vision import check_choices, check_free, run_module_job
from satchel.errors import ConfigError
from satchel.progress import ProgressBar

SUFFIX = ".onnx"


def add_onnx_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for FILE.onnx")
    group.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=N",
        help="a size of the inputs that the model only names, as batch=4; repeatable",
    )


def export_onnx_file(
    arguments: argparse.Namespace, source: str, output: str | None, choices: dict[str, Any]
) -> None:
    from satchel.exporter.module_options import ModuleOptions
    from satchel.exporter.packages import onnx_package

    with onnx_package():
        from satchel.onnx.job import prepare_onnx_export
    check_choices(source, choices)
    options = ModuleOptions(**{k: v for k, v in choices.items() if not k.startswith("calibrate")})
    if options.needs_examples or any(k.startswith("calibrate") for k in choices):
        raise ConfigError(
            "an ONNX model is calibrated with arrays of its inputs",
            'From Python: satchel.export("model.onnx", recipe="int8", calibration=[…]).',
        )
    check_free(arguments, output)
    bar = ProgressBar()
    job = prepare_onnx_export(Path(source), options, sizes=_sizes(arguments.size), progress=bar)
    run_module_job(arguments, job, output, bar)


def _sizes(given: list[str]) -> dict[str, int]:
    """
    >>> _sizes(["batch=4", "sequence=128"])
    {'batch': 4, 'sequence': 128}
    """
    sizes = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if not name or not number.isdigit() or not int(number):
            raise ConfigError(f"--size {text} is not NAME=N", "Write for example --size batch=4.")
        sizes[name] = int(number)
    return sizes
