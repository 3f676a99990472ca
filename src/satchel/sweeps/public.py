"""``satchel.sweep``: a whole experiment, from Python as from the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satchel.errors import OutputExistsError, SatchelError, UsageError
from satchel.files import check_free_space
from satchel.sources.cache import locked
from satchel.sweeps.devices import open_device
from satchel.sweeps.estimates import Tell
from satchel.sweeps.experiment import Experiment, read_experiment
from satchel.sweeps.jobs import Job, Record, Surroundings, name_of
from satchel.sweeps.planning import Plan, make_plan
from satchel.sweeps.progress import Watcher
from satchel.sweeps.results import Results, Row
from satchel.sweeps.serial import run_serial
from satchel.sweeps.store import open_store


def sweep(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    output: str | os.PathLike[str],
    *,
    store: str | None = None,
    retry: bool = False,
    ray: str | bool = False,
    memory: int | None = None,
) -> list[Row]:
    """Run an experiment, or what is left of it, and give a row for each cell.

    ``experiment`` is a YAML file or what one would hold. Exports lie in ``store``: a folder, or an
    address of fsspec's; by default in ``output``. What failed before is done
    again with ``retry``. ``ray`` is True to start a cluster on this machine, or the address of one;
    exports then take at most ``memory`` bytes together on a machine.

    >>> tiny = {"models": ["tiny-llama"], "recipes": ["fp16"], "prompts": [8], "runs": 1}
    >>> [row] = sweep({**tiny, "export": {"context": 96}}, "results")
    >>> row["status"], row["decode_tok_s"] > 0
    ('ok', True)
    """
    return Sweep(read_experiment(experiment), output, store).run(retry, ray=ray, memory=memory)


def check_memory(ray: str | bool, memory: int | None) -> None:
    """A limit that would have no effect is refused."""
    if memory is not None and ray is False:
        told = "a limit of memory is for exports that run in parallel, on Ray"
        raise UsageError(told, "Add --ray; without it there is one export at a time.")
    if memory is not None and ray is not True:
        raise UsageError(
            "a limit of memory is for a cluster that is started here",
            "Start the nodes of another with ray start --memory.",
        )


class Nobody:
    """A watcher that does not look."""

    def begun(self, job: Job) -> None:
        pass

    def done(self, job: Job, record: Record) -> None:
        pass


class Sweep:
    """An experiment with the folder of its results."""

    def __init__(
        self,
        experiment: Experiment,
        output: str | os.PathLike[str],
        store: str | None = None,
    ) -> None:
        self.experiment, self.folder = experiment, Path(output).absolute()
        # As all paths of an experiment, its store's begins at the file.
        told = Path(store) if store else experiment.folder / (experiment.store or "")
        chosen = store or experiment.store
        if chosen and "://" in chosen:
            self.store = chosen
        else:
            self.store = str(told.absolute() if chosen else self.folder / "artefacts")
        self._held = False

    def plan(self, fetch: bool = False, tell: Tell = lambda _: None) -> Plan:
        """All cells; what is not here is fetched only if asked for. ``tell`` hears what goes on."""
        return make_plan(self.experiment, fetch, self.folder / "peers", tell)

    def run(
        self,
        retry: bool = False,
        plan: Plan | None = None,
        watcher: Watcher | None = None,
        ray: str | bool = False,
        memory: int | None = None,
    ) -> list[Row]:
        """Do what is left to do."""
        check_memory(ray, memory)
        with self.alone():
            planned = plan or self.plan(fetch=True)
            results = self.results(planned, retry)
            results.write_plan(planned.to_dict())
            around = self._surroundings(planned, results)
            watching = watcher or Nobody()
            try:
                if ray:
                    from satchel.sweeps.cluster import run_on_ray

                    address = None if ray is True else str(ray)
                    run_on_ray(planned, results, around, watching, retry, address, memory)
                else:
                    run_serial(planned, results, around, watching, retry)
            finally:
                results.write_tables()
            return results.rows()

    def results(self, plan: Plan, retry: bool = False) -> Results:
        """What is done already. An export whose program somebody has deleted is not, as long as
        anything needs it."""
        results, store = Results(self.folder), open_store(self.store)
        for cell in plan.possible:
            export = cell.export
            if export is None or export.program is not None:
                continue
            jobs: list[Job] = [*cell.measurements, *([cell.quality] if cell.quality else [])]
            is_needed = not all(results.is_done(name_of(job), retry) for job in jobs)
            record = results.records.get(name_of(export))
            if is_needed and record is not None and record["ok"] and not store.has(export.file):
                results.forget(name_of(export))
        return results

    def _surroundings(self, plan: Plan, results: Results) -> Surroundings:
        rest = self.experiment.cool_down
        cold = {}
        if rest.temperature is not None:
            devices = {c.cell.device for c in plan.possible if c.measurements}
            cold = {address: open_device(address).temperature() for address in devices}
        return Surroundings(self.store, str(results.logs), self.experiment.time_limit, rest, cold)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Two sweeps in one folder would measure the same cells. Who holds it may ask again."""
        if self._held:
            yield
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputExistsError(f"{self.folder} is not a folder", "Give another one with -o.")
        check_free_space(self.folder, 0)
        open_store(self.store)  # one that cannot be is told before anything is done
        with locked(self.folder, wait=False) as held:
            if not held:
                raise SatchelError(
                    f"another sweep is writing to {self.folder}", "Wait for it, or use another -o."
                )
            self._held = True
            try:
                yield
            finally:
                self._held = False
