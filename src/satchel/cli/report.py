"""satchel report: what programs cost and give, as one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import add_program_options, positive, threads
from satchel.cli.output import emit, print_json, say, whole
from satchel.progress import ProgressBar
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.runtime.program import Program

HELP = "write a page about one or more programs: size, speed, quality, errors, placement"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="programs, side by side")
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="the page to write"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the page if it exists")
    results = parser.add_argument_group("what was measured before, or shall be measured now")
    results.add_argument(
        "--results",
        action="append",
        default=[],
        metavar="JSON",
        help="what satchel bench or satchel eval printed with --json; repeatable",
    )
    results.add_argument("--bench", action="store_true", help="measure the speed of each now")
    results.add_argument("--text", metavar="FILE", help="measure the perplexity of each now")
    results.add_argument(
        "--limit", type=positive, metavar="N", help="only the first N tokens of the text"
    )
    results.add_argument(
        "--phases",
        default="device",
        metavar="NAME,…",
        help="of the perplexity: fp (if the checkpoint is at hand), qdq, device",
    )
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> None:
    from importlib.metadata import version

    from satchel.cli.programs import open_program
    from satchel.files import atomic_write, refuse_existing
    from satchel.report.document import add_results, describe_program, label_programs, read_results
    from satchel.report.page import render

    output = Path(arguments.output)
    refuse_existing(output, arguments.force)
    opened = [open_program(file, arguments) for file in arguments.files]
    programs = [describe_program(program) for program in opened]
    label_programs(programs)
    add_results(programs, [(path, read_results(path)) for path in arguments.results])
    measured = [
        (str(program.path), result) for program in opened for result in _measure(program, arguments)
    ]
    add_results(programs, measured)
    page = render(programs, version("satchel"))
    with atomic_write(output, arguments.force) as file:
        file.write(page.encode())
    if arguments.json:
        hidden = ("label", "colour")
        shown = [{k: v for k, v in p.items() if k not in hidden} for p in programs]
        print_json({"output": str(output), "programs": shown})
    else:
        emit(f"{output}  {megabytes(len(page.encode()))}, {len(programs)} programs")


def _measure(program: Program, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from satchel.benchmark.llm import BenchOptions, measure
    from satchel.eval import EvaluationOptions, evaluate

    results = []
    if arguments.text:
        phases = tuple(name.strip() for name in arguments.phases.split(","))
        options = EvaluationOptions(
            text=arguments.text, limit=arguments.limit, phases=phases, threads=threads(arguments)
        )
        bars = ProgressBar(), ProgressBar(whole)
        results.append(evaluate(program, options, *bars, say))
        for bar in bars:
            bar.close()
    if arguments.bench:
        context = int(program.metadata.get("context") or 0)
        prompt = min(256, context * 3 // 4)
        new = min(64, context - prompt)
        options_ = BenchOptions(prompt, new, threads=threads(arguments))
        results.append(measure(program, options_, say))
    return results
