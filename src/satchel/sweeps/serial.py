"""Runs a sweep on this machine, one piece of work after the other."""

from __future__ import annotations

from collections.abc import Iterator

from satchel.sweeps.jobs import Export, Job, Measurement, Quality, Surroundings, name_of, run_job
from satchel.sweeps.planning import Plan, PlannedCell
from satchel.sweeps.progress import Watcher
from satchel.sweeps.results import Results


def run_serial(
    plan: Plan, results: Results, around: Surroundings, watcher: Watcher, retry: bool = False
) -> None:
    """All that has no record yet; with ``retry``, also what failed."""
    for job in jobs_in_order(plan):
        if results.is_done(name_of(job), retry) or not is_ready(job, results):
            continue
        watcher.begun(job)
        record = run_job(job, around)
        results.add(record)
        watcher.done(job, record)


def is_ready(job: Job, results: Results) -> bool:
    """Whether its program is there, if it needs one."""
    if isinstance(job, Export):
        return True
    if job.export is None:
        return True
    made = results.records.get(name_of(job.export))
    return made is not None and bool(made["ok"])


def jobs_in_order(plan: Plan) -> Iterator[Job]:
    """Group by group: what it needs, and then its cells in turns.

    An export that several groups use comes with the first of them.
    """
    seen: set[str] = set()
    for group in plan.groups():
        jobs: list[Job] = [*exports_of(group), *qualities_of(group), *measurements_of(group)]
        for job in jobs:
            if name_of(job) not in seen:
                seen.add(name_of(job))
                yield job


def measurements_of(group: list[PlannedCell]) -> Iterator[Measurement]:
    """In rounds over all cells, each of which begins with another one."""
    rounds = max((len(cell.measurements) for cell in group), default=0)
    for number in range(rounds):
        first = number % len(group)
        for cell in group[first:] + group[:first]:
            yield cell.measurements[number]


def exports_of(group: list[PlannedCell]) -> list[Export]:
    """Each once."""
    return list({cell.export.key: cell.export for cell in group if cell.export}.values())


def qualities_of(group: list[PlannedCell]) -> list[Quality]:
    """Each once."""
    return list({cell.quality.key: cell.quality for cell in group if cell.quality}.values())
