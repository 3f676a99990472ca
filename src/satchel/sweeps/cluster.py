"""Runs a sweep on Ray: exports in parallel, measurements one at a time on each machine.

The driver hands out all work and writes all records; workers write programs into the store and
nothing else. So a node that dies takes with it only what it was doing, which is done elsewhere.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

from satchel.errors import ConfigError
from satchel.machine import cores
from satchel.sweeps.devices import LOCAL
from satchel.sweeps.jobs import (
    Export,
    Job,
    Measurement,
    Quality,
    Record,
    Surroundings,
    failure,
    name_of,
    run_job,
)
from satchel.sweeps.planning import Plan
from satchel.sweeps.progress import Watcher
from satchel.sweeps.results import Results
from satchel.sweeps.serial import exports_of, is_ready, measurements_of, qualities_of
from satchel.units import megabytes

_ATTEMPTS = 3  # at work whose node dies under it
_LOOK_EVERY = 1.0  # seconds, at which nodes there are
_ANSWERS_WITHIN = 10.0  # seconds
_START = "ray start --head starts one, and tells its address."


def run_on_ray(
    plan: Plan,
    results: Results,
    around: Surroundings,
    watcher: Watcher,
    retry: bool = False,
    address: str | None = None,
    memory: int | None = None,
) -> None:
    """All that has no record yet, on a cluster by its address or on one that is started here."""
    try:
        import ray
    except ImportError:
        raise ConfigError("Ray is not installed", "pip install 'satchel[sweep]'.") from None
    mine = not ray.is_initialized()
    if mine:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            workers = max(2, cores())
            ray.init(num_cpus=workers, _memory=memory, include_dashboard=False, **quiet)
        else:
            _check_answers(address)
            try:
                ray.init(address=address, **quiet)
            except (ConnectionError, ValueError) as error:
                raise ConfigError(f"no Ray cluster at {address}: {error}", _START) from None
    try:
        _Driver(ray, plan, results, around, watcher, retry).run()
    finally:
        if mine:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # such as auto
    try:
        socket.create_connection((host, int(port)), _ANSWERS_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"no Ray cluster answers at {address}: {error}", _START) from None


@dataclass
class _Group:
    """Cells that are measured in turns, and so on one machine as long as it lives."""

    jobs: list[Measurement]
    here: bool  # peers are installed on the driver's machine
    machine: str | None = None


@dataclass
class _Running:
    job: Job
    group: _Group | None = None  # of a measurement
    place: str = ""  # the machine or device that it holds
    node: str = ""  # where it was sent; empty: where Ray likes


class _Driver:
    """Hands out work as machines, memory and programs allow, until there is none left."""

    def __init__(
        self,
        ray: Any,
        plan: Plan,
        results: Results,
        around: Surroundings,
        watcher: Watcher,
        retry: bool,
    ) -> None:
        self.ray, self.results, self.around, self.watcher = ray, results, around, watcher
        self.retry = retry
        self.running: dict[Any, _Running] = {}
        self.attempts: Counter[str] = Counter()
        self.recorded: set[str] = set()  # in this run
        self.lost: set[str] = set()  # nodes that work was lost on: Ray learns of a death late
        self.turns = count()
        self.here = ray.get_runtime_context().get_node_id()
        self.shared: dict[str, Export | Quality] = {}  # what several groups may need
        self.groups: list[_Group] = []
        for cells in plan.groups():
            needed: list[Export | Quality] = [*exports_of(cells), *qualities_of(cells)]
            for job in needed:
                if self._is_left(job):
                    self.shared.setdefault(name_of(job), job)
            jobs = [each for each in measurements_of(cells) if self._is_left(each)]
            self.groups.append(_Group(jobs, any(cell.cell.peer for cell in cells)))

    def run(self) -> None:
        while True:
            alive = [node for node in self.ray.nodes() if node["Alive"]]
            nodes = [node for node in alive if node["NodeID"] not in self.lost] or alive
            self._start_shared(nodes)
            self._start_measurements(nodes)
            if not self.running:
                break
            finished, _ = self.ray.wait(list(self.running), timeout=_LOOK_EVERY)
            for reference in finished:
                self._take_in(reference)

    def _is_left(self, job: Job) -> bool:
        name = name_of(job)
        return not self.results.is_done(name, self.retry and name not in self.recorded)

    def _start_shared(self, nodes: list[dict[str, Any]]) -> None:
        """Ray itself sees to it that those on a node take no more memory than it has."""
        most = max((node["Resources"].get("memory", 0) for node in nodes), default=0)
        for name, job in list(self.shared.items()):
            if isinstance(job, Quality) and self._is_left(job.export):
                continue
            del self.shared[name]
            needed = job.memory if isinstance(job, Export) else 0
            if needed > most:
                there = f"and no node has more than {megabytes(most)}"
                reason = f"it takes {megabytes(needed)} of memory, {there}"
                self._record(job, failure(job, "MemoryError", reason))
            elif is_ready(job, self.results):
                self._submit(_Running(job), num_cpus=1, memory=needed)

    def _start_measurements(self, nodes: list[dict[str, Any]]) -> None:
        """At most one on each machine; several nodes may be one machine."""
        machines: dict[str, list[str]] = {}
        for each in nodes:
            machines.setdefault(each["NodeManagerHostname"], []).append(each["NodeID"])
        own = next((host for host, ids in machines.items() if self.here in ids), "")
        busy = {running.place for running in self.running.values() if running.place}
        for group in self.groups:
            if group.machine not in machines:
                group.machine = None  # it has died, or was never chosen
            for job in list(group.jobs):
                if job.export is not None and self._is_left(job.export):
                    continue
                if not is_ready(job, self.results):
                    group.jobs.remove(job)  # its export failed, which its row tells
                    continue
                place = job.device
                if place == LOCAL:
                    wanted = [own] if group.here else list(machines)
                    wanted = [group.machine] if group.machine else wanted
                    place = next((host for host in wanted if host not in busy), "")
                if not place or place in busy:
                    continue
                node = self.here
                if job.device == LOCAL:
                    group.machine = place
                    node = machines[place][next(self.turns) % len(machines[place])]
                busy.add(place)
                group.jobs.remove(job)
                self._submit(_Running(job, group, place, node), num_cpus=0)

    def _submit(self, running: _Running, **options: Any) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if running.node:
            chosen = NodeAffinitySchedulingStrategy(running.node, soft=False)
            options["scheduling_strategy"] = chosen
        work = self.ray.remote(_work).options(max_retries=0, **options)
        self.watcher.begun(running.job)
        threads = os.environ.get("OMP_NUM_THREADS")
        self.running[work.remote(running.job, self.around, threads)] = running

    def _take_in(self, reference: Any) -> None:
        running = self.running.pop(reference)
        job, name = running.job, name_of(running.job)
        try:
            self._record(job, self.ray.get(reference))
        except self.ray.exceptions.RayTaskError as error:
            self._record(job, failure(job, "Failed", str(error.cause)))
        except self.ray.exceptions.RayError as error:  # its node or its worker has died
            self.attempts[name] += 1
            self.lost |= {running.node} - {"", self.here}
            if self.attempts[name] >= _ATTEMPTS:
                reason = " ".join(str(error).split())[:160]
                self._record(job, failure(job, type(error).__name__, reason))
            elif isinstance(job, Measurement):
                assert running.group is not None
                running.group.jobs.insert(0, job)
            else:
                self.shared[name] = job

    def _record(self, job: Job, record: Record) -> None:
        self.results.add(record)
        self.recorded.add(record["name"])
        self.watcher.done(job, record)


def _work(job: Job, around: Surroundings, threads: str | None) -> Record:
    """What runs on a worker. Ray tells its workers how many threads to use; a measurement has as
    many as it would have without Ray."""
    os.environ.pop("OMP_NUM_THREADS", None)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = threads
    return run_job(job, around)
