"""satchel export: a checkpoint becomes one program file."""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import add_export_options, export_choices, positive, wrong_usage
from satchel.cli.export_onnx import SUFFIX, add_onnx_options, export_onnx_file
from satchel.cli.export_pt2 import SUFFIX as PT2
from satchel.cli.export_pt2 import export_pt2_file
from satchel.cli.export_text import add_text_options, export_text_folder
from satchel.cli.export_vision import PREFIX, TIMM, add_vision_options, export_vision
from satchel.cli.output import emit, print_json, say, whole
from satchel.cli.plan import describe_export, print_plan, report_written
from satchel.errors import ConfigError, UsageError
from satchel.progress import ProgressBar
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.eval.gate import GatedExport, QualityGate
    from satchel.exporter import ModelExport

HELP = "pack a checkpoint into one .satchel file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        nargs="?",
        help="a name, hf:ORG/REPO, a checkpoint's path, FILE.onnx, FILE.pt2, torchvision:NAME "
        "or timm:NAME; may be in --config",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="a file, or a folder; the name tells model, target and recipe by default",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only predict file size and peak memory, without reading weights",
    )
    add_export_options(parser)
    add_vision_options(parser)
    add_onnx_options(parser)
    add_text_options(parser)
    gate = parser.add_argument_group("what to refuse")
    gate.add_argument(
        "--max-ppl-increase",
        type=float,
        metavar="X",
        help="write no program whose perplexity on --eval-text is more than X above float's",
    )
    gate.add_argument("--eval-text", metavar="FILE", help="the text, UTF-8")
    gate.add_argument(
        "--eval-limit", type=positive, metavar="N", help="only its first N tokens (all)"
    )


def execute(arguments: argparse.Namespace) -> None:
    from satchel.backends.target import PROGRAM
    from satchel.exporter import ExportOptions, ModelExport, prepare_any_export
    from satchel.exporter.checks import is_folder
    from satchel.files import check_output
    from satchel.sources.names import vision_source

    started = time.perf_counter()
    choices = export_choices(arguments)
    source, named = choices.pop("source", None), choices.pop("output", None)
    if source is None:
        source = choices.get("checkpoint")
    if source is None:
        raise UsageError("there is nothing to export", "Give SOURCE, or source: in --config.")
    if not Path(source).exists():
        source = vision_source(source)
    if source.startswith((PREFIX, TIMM)):
        export_vision(arguments, source, named, choices)
        return
    if source.endswith(SUFFIX):
        export_onnx_file(arguments, source, named, choices)
        return
    if source.endswith(PT2):
        export_pt2_file(arguments, source, named, choices)
        return
    if arguments.task:
        export_text_folder(arguments, source, named, choices)
        return
    _refuse_options_of_modules(arguments, choices, source)
    gate = _gate(arguments)
    if named and not is_folder(named) and not arguments.plan:
        check_output(Path(named), arguments.force)
    bar = ProgressBar()
    # What a file says that cannot be is a failure; what was typed is wrong usage.
    with nullcontext() if arguments.config else wrong_usage():
        options = ExportOptions(**choices)
        options.make_recipe()
    job = prepare_any_export(source, options, bar)
    for note in job.notes:
        say(note)
    text = job if isinstance(job, ModelExport) else None
    if gate and not text:
        raise ConfigError("--max-ppl-increase is for language models", "Leave it out.")
    gated = _gated(source, text, gate, bar) if gate and text else None
    output = job.output(named)
    plan = job.plan()
    document = describe_export(job, plan, output)
    if gate and job.kind != PROGRAM:
        raise ConfigError(
            f"what a {job.kind.suffix} file costs in quality is not measured here",
            "Leave --max-ppl-increase out, or measure the same recipe for cpu.",
        )
    if arguments.plan:
        if arguments.json:
            print_json(document)
            return
        apart = "head         stored apart from the embedding, because it is rotated"
        tied = text and text.opened.rotated and text.opened.model.tied
        print_plan(job, plan, output, [apart] if tied else [])
        return
    document["quality"] = None
    if gated is None:
        job.run(output, arguments.force)
    else:
        document["quality"] = gated.run(output, arguments.force)
    bar.close()
    seconds = time.perf_counter() - started
    if job.kind != PROGRAM:
        report_written(arguments, document, output, seconds)
        return
    _report(arguments, document, output, seconds)


def _refuse_options_of_modules(
    arguments: argparse.Namespace, choices: dict[str, Any], source: str
) -> None:
    """What only other kinds of sources have would be left out without a word."""
    from satchel.exporter.module_options import ModuleOptions
    from satchel.options import options_of

    given = [each.name for each in options_of(ModuleOptions) if each.name in choices]
    given += [name for name in ("weights", "classes", "random_weights") if vars(arguments)[name]]
    given += ["size"] if arguments.size else []
    if given:
        kind = "ONNX files" if given == ["size"] else "torchvision:NAME"
        raise UsageError(
            f"--{given[0].replace('_', '-')} is for {kind}, and {source} is a checkpoint",
            "Leave it out.",
        )


def _gate(arguments: argparse.Namespace) -> QualityGate | None:
    """What the program has to be as good as, if someone asked."""
    if arguments.max_ppl_increase is None and arguments.eval_text is None:
        return None
    if arguments.max_ppl_increase is None or arguments.eval_text is None:
        raise UsageError(
            "--max-ppl-increase and --eval-text need each other", "Give both, or neither."
        )
    from satchel.eval.gate import QualityGate

    return QualityGate(arguments.max_ppl_increase, arguments.eval_text, arguments.eval_limit)


def _gated(source: str, job: ModelExport, gate: QualityGate, bar: ProgressBar) -> GatedExport:
    from satchel.eval.gate import GatedExport

    return GatedExport(source, job, gate, bar, ProgressBar(whole))


def _report(
    arguments: argparse.Namespace, document: dict[str, Any], output: Path, seconds: float
) -> None:
    from satchel.machine import peak_with_children
    from satchel.runtime.program import Program

    program = Program(output)
    errors = program.about.weight_error
    document |= {
        "file_size_bytes": program.size,
        "seconds": seconds,
        "peak_rss_bytes": peak_with_children(),
        "weight_error": errors,
        "checksum": program.checksum,
    }
    if arguments.json:
        print_json(document)
        return
    emit(f"{output}  {megabytes(program.size)}, {document['recipe']}")
    quality = document["quality"]
    if quality:
        emit(
            f"perplexity {quality['device_ppl']:.3f}, {quality['increase']:+.3f} over float's, "
            f"on {quality['tokens']} tokens of {arguments.eval_text}"
        )
    pre_quantized = program.about.recipe["kept"]
    if pre_quantized:
        emit(f"kept as they are: {pre_quantized}")
    emit(f"in {seconds:.1f} s with at most {megabytes(peak_with_children())} of memory")
    if any(errors.values()):
        emit("relative weight error by kind of layer:")
        for name, error in sorted(errors.items(), key=lambda item: -item[1]):
            emit(f"  {error:7.4f}  {name}")
