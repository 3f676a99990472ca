"""satchel export torchvision:NAME: a classifier becomes one program file."""

from __future__ import annotations

import argparse
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.output import emit, print_json, say, table
from satchel.cli.plan import describe_export, print_plan, report_written
from satchel.errors import ConfigError, InputError
from satchel.progress import ProgressBar
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.backends import Target
    from satchel.exporter import Export

PREFIX = "torchvision:"
TIMM = "timm:"
_SHOWN_LAYERS = 8
_OTHER = {
    "calibrate",
    "calibrate_limit",
    "calibrate_samples",
}  # what a module has beside its options
DEFAULT_IMAGES = 64


def add_vision_options(parser: argparse.ArgumentParser) -> None:
    from satchel.exporter.module_options import MODULE

    # Beside the options of all modules, which have made this group.
    group = next(each for each in parser._action_groups if each.title == MODULE)
    group.add_argument(
        "--weights",
        metavar="NAME",
        help="torchvision's by name (DEFAULT, IMAGENET1K_V1), fetched once, or a .pth, "
        ".safetensors or .gguf file (DEFAULT)",
    )
    group.add_argument("--classes", metavar="FILE", help="names of the classes, one on each line")
    group.add_argument(
        "--random-weights", action="store_true", help="no weights at all, for measuring speed"
    )


def export_vision(
    arguments: argparse.Namespace, source: str, output: str | None, choices: dict[str, Any]
) -> None:
    check_choices(source, choices)
    bar = ProgressBar()
    job = _job(arguments, source, choices, bar)
    run_module_job(arguments, job, output, bar)


def check_choices(source: str, choices: dict[str, Any]) -> None:
    """No option is for language models alone."""
    from satchel.exporter.module_options import ModuleOptions

    other = sorted(set(choices) - {field.name for field in fields(ModuleOptions)} - _OTHER)
    if other:
        named = other[0].replace("_", "-")
        raise ConfigError(f"--{named} is for language models, and {source} is not one")


def check_free(arguments: argparse.Namespace, output: str | None) -> None:
    """That nothing is in the way, before the work and not after it."""
    from satchel.exporter.checks import is_folder
    from satchel.files import check_output

    if output and not is_folder(output) and not arguments.plan:
        check_output(Path(output), arguments.force)


def run_module_job(
    arguments: argparse.Namespace, job: Export, output: str | None, bar: ProgressBar
) -> None:
    """Write the program, or only plan it, and tell what became of it."""
    from satchel.backends.target import PROGRAM

    started = time.perf_counter()
    path = job.output(output)
    plan = job.plan()
    document = describe_export(job, plan, path)
    if arguments.plan:
        if arguments.json:
            print_json(document)
        else:
            print_plan(job, plan, path, [])
        return
    job.run(path, arguments.force)
    bar.close()
    seconds = time.perf_counter() - started
    if job.kind != PROGRAM:
        report_written(arguments, document, path, seconds)
        return
    report_module(arguments, path, seconds, job.targets)


def _job(
    arguments: argparse.Namespace, source: str, choices: dict[str, Any], bar: ProgressBar
) -> Export:
    from satchel.exporter.checks import is_folder
    from satchel.exporter.packages import torch_package
    from satchel.files import check_output

    with torch_package():
        from satchel.torch.job import prepare_module_export
        from satchel.torch.timm_models import TimmModel
        from satchel.torch.vision_models import VisionModel
    from satchel.exporter.module_options import ModuleOptions
    from satchel.vision.classifier import class_metadata
    from satchel.vision.made_up import made_up_images

    if arguments.output and not is_folder(arguments.output) and not arguments.plan:
        check_output(Path(arguments.output), arguments.force)
    options = ModuleOptions(**{k: v for k, v in choices.items() if k not in _OTHER})
    folder = choices.get("calibrate")
    if folder is not None and not options.needs_examples:
        raise ConfigError(f"--calibrate is for the recipe int8, not {options.recipe_name}")
    wanted = choices.get("calibrate_samples") or choices.get("calibrate_limit") or DEFAULT_IMAGES
    images = _images(folder, wanted) if folder else None
    # A plan needs the shapes only.
    unread = arguments.random_weights or (arguments.plan and arguments.weights is None)
    given = arguments.weights, arguments.classes, unread
    timm = source.startswith(TIMM)
    model = TimmModel(source, *given) if timm else VisionModel(source, *given, bar)
    examples = None
    if images is not None:
        examples = [model.preprocessing.prepare(image) for image in images]
    elif options.needs_examples:
        examples = made_up_images(model.preprocessing)
        if not unread:
            say(
                "Ranges are measured on made-up images: photographs like those that it will see "
                "(--calibrate FOLDER) give better ones."
            )
    metadata = {
        "architecture": f"{TIMM if timm else PREFIX}{model.name}",
        **class_metadata(model.preprocessing, model.classes),
    }
    return prepare_module_export(
        model.module,
        (model.example(),),
        replace(options, metadata=metadata),
        name=model.name,
        calibration=examples,
        progress=bar,
    )


def _images(folder: str, limit: int) -> list[Any]:
    from satchel.vision.images import image_paths, open_image

    place = Path(folder)
    if not place.is_dir():
        raise ConfigError(f"{folder} is not a folder of images to calibrate on")
    paths = list(image_paths(place))
    if not paths:
        raise ConfigError(
            f"{folder} has no images to calibrate on", "Put some JPEG, PNG or BMP files there."
        )
    images = []
    for path in paths:
        try:
            images.append(open_image(path, str(path)))
        except InputError as error:
            say(f"left out: {error.message}")
        if len(images) == limit:
            break
    if not images:
        raise ConfigError(f"no image in {folder} can be read", "Put some JPEG or PNG files there.")
    return images


def report_module(
    arguments: argparse.Namespace, path: Path, seconds: float, targets: tuple[Target, ...]
) -> None:
    from satchel.machine import peak_with_children
    from satchel.runtime.program import Program

    program = Program(path)
    meta = program.metadata
    document = {
        "output": str(path),
        "name": meta["name"],
        "architecture": meta["architecture"],
        "recipe": meta["recipe"]["description"],
        "parameters": meta["parameters"],
        "classes": len(meta.get("vision", {}).get("classes", [])),
        "layer_snr_db": meta["layer_snr_db"],
        "kept_in_float": meta["kept_in_float"],
        "output_snr_db": meta["output_snr_db"],
        "in_16_bits": meta["in_16_bits"],
        "placement": meta["placement"],
        "payloads": meta.get("payloads", {}),
        "file_size_bytes": program.size,
        "seconds": seconds,
        "peak_rss_bytes": peak_with_children(),
        "checksum": program.checksum,
    }
    if arguments.json:
        print_json(document)
        return
    emit(f"{path}  {megabytes(program.size)}, {document['recipe']}")
    for target in targets:
        emit("".join(f"{line}\n" for line in target.report(program)), end="")
    for entry in meta["placement"]["fallbacks"]:
        emit(f"on the CPU: {entry['nodes']} {entry['op']} ({entry['reason']})")
    noise = meta["layer_snr_db"]
    if meta["kept_in_float"]:
        emit(f"in floats, because 8 bits would cost too much: {', '.join(meta['kept_in_float'])}")
    if meta["output_snr_db"] is not None:
        emit(f"signal-to-noise ratio of the outputs: {meta['output_snr_db']:.1f} dB")
    if noise:
        emit("signal-to-noise ratio of the noisiest layers:")
        rows = [[f"{value:.1f} dB", name] for name, value in list(noise.items())[:_SHOWN_LAYERS]]
        emit(table(rows, ["SNR", "layer"]))
