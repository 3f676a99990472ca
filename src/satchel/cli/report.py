"""satchel report: what programs cost and give, as one page."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import add_program_options, positive, threads
from satchel.cli.output import emit, print_json, say, whole
from satchel.errors import EvaluationError, UsageError
from satchel.progress import ProgressBar
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.runtime.program import Program

HELP = "write a page about programs, or about the results of a sweep"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="programs, side by side; or the folder of a sweep"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the page to write (report.html; of a sweep, in its folder)",
    )
    parser.add_argument(
        "--against",
        metavar="FOLDER",
        help="of a sweep: tell what has changed since the results in another folder",
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
    if len(arguments.files) == 1 and Path(arguments.files[0]).is_dir():
        _report_sweep(arguments)
        return
    if arguments.against:
        raise UsageError("--against is for the results of a sweep", "Give their folder.")
    from importlib.metadata import version

    from satchel.cli.programs import open_program
    from satchel.files import atomic_write, check_output
    from satchel.machine import describe_machine
    from satchel.report.document import add_results, describe_program, label_programs, read_results
    from satchel.report.page import render

    output = Path(arguments.output or "report.html")
    check_output(output, arguments.force)
    opened = [open_program(file, arguments) for file in arguments.files]
    programs = [describe_program(program) for program in opened]
    label_programs(programs)
    add_results(programs, [(path, read_results(path)) for path in arguments.results])
    measured = [
        (str(program.path), result) for program in opened for result in _measure(program, arguments)
    ]
    add_results(programs, measured)
    page = render(
        programs, version("satchel"), describe_machine(), f"{date.today():%Y-%m-%d}"
    ).encode(errors="replace")  # a file's name may be any bytes
    with atomic_write(output, arguments.force) as file:
        file.write(page)
    if arguments.json:
        hidden = ("label", "colour", "letter")
        shown = [{k: v for k, v in p.items() if k not in hidden} for p in programs]
        print_json({"output": str(output), "programs": shown})
    else:
        emit(f"{output}  {megabytes(len(page))}, {len(programs)} programs")


def _report_sweep(arguments: argparse.Namespace) -> None:
    from satchel.sweeps.report.page import write_report

    folder = Path(arguments.files[0])
    output = Path(arguments.output) if arguments.output else folder / "report.html"
    against = Path(arguments.against) if arguments.against else None
    # In its own folder it is made anew as results come in.
    overwrite = arguments.force or arguments.output is None
    tables, files = write_report(folder, output, against, overwrite)
    if arguments.json:
        listed = [{"name": table.name, "title": table.title} for table in tables]
        print_json({"output": str(output), "tables": listed, "files": [str(f) for f in files]})
        return
    emit(f"{output}, {len(tables)} tables")
    emit(f"as Markdown and LaTeX in {output.parent / 'tables'}")


def _measure(program: Program, arguments: argparse.Namespace) -> list[dict[str, Any]]:
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
        results.append(_bench_apart(program, threads(arguments)))
    return results


def _bench_apart(program: Program, threads: int) -> dict[str, Any]:
    """Measured in a process of its own, whose peak memory is that of this program alone."""
    call = [sys.executable, "-m", "satchel", "bench", str(program.path), "--json"]
    context = program.language_model.context
    if context:
        prompt = min(256, context * 3 // 4)
        call += ["--prompt-tokens", str(prompt), "--new-tokens", str(min(64, context - prompt))]
    call += ["--threads", str(threads)] if threads else []
    say(f"Measuring {program.path.name} …")
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["it ended without a word"]
        raise EvaluationError(f"{program.path} could not be measured ({reason[0]})")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
