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
from satchel.errors import EvaluationError
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
    from satchel.machine import describe_machine
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
    page = render(programs, version("satchel"), describe_machine(), f"{date.today():%Y-%m-%d}")
    with atomic_write(output, arguments.force) as file:
        file.write(page.encode())
    if arguments.json:
        hidden = ("label", "colour", "letter")
        shown = [{k: v for k, v in p.items() if k not in hidden} for p in programs]
        print_json({"output": str(output), "programs": shown})
    else:
        emit(f"{output}  {megabytes(len(page.encode()))}, {len(programs)} programs")


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
    context = int(program.metadata.get("context") or 0)
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
