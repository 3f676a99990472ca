"""satchel sweep: a whole experiment in one command."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import positive
from satchel.cli.output import emit, print_json, say
from satchel.units import counted, megabytes

if TYPE_CHECKING:
    from satchel.sweeps.planning import Plan, PlannedCell

_UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NAMED = 3  # cells that have one reason
HELP = "run an experiment: models by recipes by targets by devices, from one YAML file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", metavar="FILE", help="the experiment (satchel help sweep)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        default="results",
        help="for the results; a sweep that was stopped goes on there",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only list the cells with size, time and memory, and those that are not possible",
    )
    parser.add_argument(
        "--retry", action="store_true", help="also do again what failed in an earlier run"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        type=only,
        metavar="AXIS=NAME,…",
        help="of the matrix only this part: targets=cpu, models=qwen*; repeatable",
    )
    parser.add_argument("--runs", type=positive, metavar="N", help="instead of the experiment's")
    parser.add_argument("--repeats", type=positive, metavar="N", help="likewise")
    parser.add_argument(
        "--store",
        metavar="PLACE",
        help="for exports: a folder, or an address of fsspec's such as s3://bucket/folder "
        "(in the results)",
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const=True,
        default=False,
        metavar="ADDRESS",
        help="run on Ray: on a cluster by its address, or here (pip install 'satchel[sweep]')",
    )
    parser.add_argument(
        "--memory",
        type=size,
        metavar="SIZE",
        help="with --ray: what exports may take together on a machine, such as 8G (all of it)",
    )


def only(text: str) -> tuple[str, list[str]]:
    """
    >>> only("target=cpu,vulkan")
    ('targets', ['cpu', 'vulkan'])
    """
    from satchel.sweeps.axes import AXES

    name, equals, patterns = text.partition("=")
    axis = name if name in AXES else f"{name}s"
    if not equals or axis not in AXES:
        listed = ", ".join(AXES)
        raise argparse.ArgumentTypeError(f"{text!r} is not AXIS=NAME; axes are {listed}")
    return axis, patterns.split(",")


def together(chosen: Iterable[tuple[str, list[str]]]) -> dict[str, list[str]]:
    """All that was said about each axis.

    >>> together([("models", ["qwen*"]), ("targets", ["cpu"]), ("models", ["llama*"])])
    {'models': ['qwen*', 'llama*'], 'targets': ['cpu']}
    """
    kept: dict[str, list[str]] = {}
    for axis, patterns in chosen:
        kept.setdefault(axis, []).extend(patterns)
    return kept


def size(text: str) -> int:
    """
    >>> size("1.5G")
    1500000000
    """
    number, unit = text.upper().removesuffix("B"), ""
    if number[-1:] in _UNITS:
        number, unit = number[:-1], number[-1]
    try:
        found = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        found = 0.0
    if not 0 < found < 1e18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8G")
    return int(found)


def execute(arguments: argparse.Namespace) -> int:
    from satchel import __version__
    from satchel.sweeps.experiment import read_experiment
    from satchel.sweeps.public import Sweep, check_memory
    from satchel.sweeps.watching import watcher_for

    chosen = {
        key: getattr(arguments, key) for key in ("runs", "repeats") if getattr(arguments, key)
    }
    check_memory(arguments.ray, arguments.memory)
    kept = together(arguments.only)
    experiment = replace(read_experiment(arguments.experiment), only=kept, **chosen)
    sweep = Sweep(experiment, arguments.output, arguments.store)
    if arguments.plan:
        plan = sweep.plan(tell=say)
        if arguments.json:
            print_json({**plan.to_dict(), "seconds": plan.seconds})
        else:
            _print_plan(plan)
        return 0
    with sweep.alone():
        plan = sweep.plan(fetch=True, tell=say)
        say(_summary(plan))
        results = sweep.results(plan, arguments.retry)
        if wrote := results.other_version(__version__):
            say(f"{sweep.folder} is of Satchel {wrote}: all is exported and measured again")
        watcher = watcher_for(plan, results, arguments.retry, arguments.json)
        try:
            with watcher:
                rows = sweep.run(arguments.retry, plan, watcher, arguments.ray, arguments.memory)
        except KeyboardInterrupt:
            say("\nWhat is done is kept: the same command goes on from there.")
            raise
    counts = {
        status: sum(row["status"] == status for row in rows)
        for status in ("ok", "failed", "impossible", "pending")
    }
    if arguments.json:
        print_json({"output": str(sweep.folder), "cells": len(rows), **counts, "rows": rows})
        return 0
    for status in ("failed", "impossible"):
        told = [
            (_label(row), _why(row["error"], row["advice"]))
            for row in rows
            if row["status"] == status
        ]
        for line in by_reason(told):
            emit(f"{status}: {line}")
    emit(
        f"{sweep.folder}: {counts['ok']} of {len(rows)} cells measured, {counts['failed']} failed, "
        f"{counts['impossible']} not possible"
    )
    emit(f"satchel report {shlex.quote(arguments.output)} shows them on a page.")
    return 0


def by_reason(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each reason, with the cells that it is true of.

    >>> list(by_reason([("a", "no compiler"), ("b", "too large"), ("c", "no compiler")]))
    ['a, c: no compiler', 'b: too large']
    """
    cells: dict[str, list[str]] = {}
    for label, reason in told:
        cells.setdefault(reason, []).append(label)
    for reason, labels in cells.items():
        more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
        yield f"{', '.join(labels[:_NAMED])}{more}: {reason}"


def _label(row: dict[str, Any]) -> str:
    parts = (row["model"], row["peer"] or row["target"], row["recipe"], row["prompt"])
    return " ".join(part for part in parts if part)


def _summary(plan: Plan) -> str:
    from satchel.sweeps.progress import duration

    possible, exports = plan.possible, [e for e in plan.exports if e.program is None]
    parts = [counted(len(plan.cells), "cell"), counted(len(exports), "export")]
    if len(possible) < len(plan.cells):
        parts.append(f"{len(plan.cells) - len(possible)} not possible")
    parts.append(f"about {duration(plan.seconds)}")
    return f"{plan.experiment.name}: {', '.join(parts)}"


def _print_plan(plan: Plan) -> None:
    emit(_summary(plan))
    width = shutil.get_terminal_size().columns
    room = max(20, width - 36)
    emit(f"{'cell':<{room}} {'file':>10} {'memory':>10}  {'time':>12}".rstrip())
    for planned in plan.cells:
        label = planned.cell.label
        label = label if len(label) <= room else f"{label[: room - 1]}…"
        emit(f"{label:<{room}} {_takes(planned)}".rstrip())
    impossible = [planned for planned in plan.cells if planned.impossible]
    if impossible:
        emit("\nnot possible:")
    told = [(planned.cell.label, _reason(planned)) for planned in impossible]
    for line in by_reason(told):
        emit(f"  {line}")
    memory = max((planned.estimate.export_bytes or 0 for planned in plan.possible), default=0)
    if memory:
        emit(f"\nThe largest export takes {megabytes(memory)} of memory; ~ is a guess.")


def _reason(planned: PlannedCell) -> str:
    error = planned.impossible or {}
    return _why(error["message"], error.get("advice"))


def _why(message: str, advice: str | None) -> str:
    return f"{message}. {advice}" if advice else message


def _takes(planned: PlannedCell) -> str:
    from satchel.sweeps.progress import duration

    if planned.impossible:
        return f"{'not possible':>35}"
    about = "~" if planned.estimate.rough else ""
    file, memory = planned.estimate.file_bytes, planned.memory
    sizes = [f"{about}{megabytes(each)}" if each else "?" for each in (file, memory)]
    return f"{sizes[0]:>10} {sizes[1]:>10}  {duration(planned.seconds):>12}"
