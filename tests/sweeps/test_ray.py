"""Sweeps on Ray: two nodes on this machine, of which one dies.

    pytest tests/sweeps/test_ray.py -m slow

``test_smoke.py`` runs a whole experiment on Ray each time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from satchel.sweeps.experiment import read_experiment
from satchel.sweeps.jobs import Job, Record, name_of
from satchel.sweeps.public import Sweep
from satchel.sweeps.results import Results

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = pytest.mark.slow
NODE_MEMORY = 130_000_000  # of an export: some 80 MB, so that a node has room for one


@pytest.fixture
def cluster() -> Iterator[Any]:
    made = cluster_utils.Cluster(
        initialize_head=True,
        connect=True,
        head_node_args={"num_cpus": 4, "memory": NODE_MEMORY, "include_dashboard": False},
    )
    yield made
    ray.shutdown()
    made.shutdown()


class NodeKiller:
    """Ends a node without a word as soon as it measures something."""

    def __init__(self, cluster: Any, node: Any) -> None:
        self.begun_jobs: list[str] = []
        self.records: list[Record] = []
        self.killed = threading.Event()
        raylet = node.all_processes["raylet"][0].process.pid
        self.thread = threading.Thread(target=self.watch, args=(cluster, node, raylet), daemon=True)
        self.thread.start()

    def watch(self, cluster: Any, node: Any, raylet: int) -> None:
        while not any(raylet in ancestors(pid) for pid in measuring()):
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)
        self.killed.set()

    def begun(self, job: Job) -> None:
        self.begun_jobs.append(name_of(job))

    def done(self, job: Job, record: Record) -> None:
        self.records.append(record)


def measuring() -> list[int]:
    """Processes that are ``satchel bench``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"satchel\0bench\0" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def ancestors(pid: int) -> list[int]:
    chain: list[int] = []
    with suppress(OSError):
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            chain.append(pid)
    return chain


def span(record: Record) -> tuple[float, float]:
    begin = datetime.strptime(record["started"], "%Y-%m-%dT%H:%M:%S.%fZ").timestamp()
    return begin, begin + record["seconds"]


def most_together(records: list[Record], field: str) -> float:
    """The largest sum of a field over records whose times overlap."""
    times = [begin for begin, _ in map(span, records)]
    return max(sum(r[field] for r in records if span(r)[0] <= at < span(r)[1]) for at in times)


def test_a_node_dies_and_nothing_is_lost(
    cluster: Any, tiny: dict[str, Any], tmp_path: Path
) -> None:
    second = cluster.add_node(num_cpus=4, memory=NODE_MEMORY)
    tiny["recipes"] = ["fp16", "8a8w", "8da4w:32"]
    tiny["prompts"] = [{"tokens": number, "new_tokens": 4} for number in (4, 8)]
    killer = NodeKiller(cluster, second)
    rows = Sweep(read_experiment(tiny), tmp_path / "results").run(ray=True, watcher=killer)
    assert [row["status"] for row in rows] == ["ok"] * 6
    assert killer.killed.is_set()  # which Ray itself may learn of later than we do
    again = [name for name, times in Counter(killer.begun_jobs).items() if times > 1]
    assert len(again) == 1 and again[0].startswith("cell-")  # it was cut off, and done elsewhere

    names = [record["name"] for record in killer.records]
    assert len(names) == len(set(names)) == 3 + 6  # each export and each cell was done once
    assert set(names) == set(Results(tmp_path / "results").records)

    # No two at once on one machine, although it has two nodes.
    measured = sorted(span(r) for r in killer.records if r["kind"] == "measurement")
    assert all(end <= begin for (_, end), (begin, _) in pairwise(measured))

    # Exports of a node took no more memory than it has: one at a time on each of the two.
    exports = [r for r in killer.records if r["kind"] == "export"]
    assert all(record["export_peak_bytes"] <= NODE_MEMORY for record in exports)
    assert most_together(exports, "export_peak_bytes") <= 2 * NODE_MEMORY


def test_an_export_that_no_node_has_memory_for_is_a_row(
    cluster: Any, tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{**node, "Resources": {"memory": 1e6}} for node in ray.nodes()]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    [row] = Sweep(read_experiment(tiny), tmp_path / "results").run(ray=True)
    assert row["status"] == "failed" and row["failed_in"] == "export"
    assert "no node has more than 1.0 MB" in row["error"]
