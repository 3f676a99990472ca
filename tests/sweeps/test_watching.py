"""What a person sees of a sweep while it runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from satchel.sweeps.experiment import read_experiment
from satchel.sweeps.jobs import Export, Job, Record, failure, name_of
from satchel.sweeps.planning import Plan
from satchel.sweeps.progress import Progress
from satchel.sweeps.public import Sweep
from satchel.sweeps.results import Results
from satchel.sweeps.serial import jobs_in_order
from satchel.sweeps.watching import LineWatcher, LiveWatcher


@pytest.fixture(scope="module")
def plan(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    experiment = {
        "name": "watched",
        "models": [str(checkpoint)],
        "recipes": ["fp16", "8da4w:32", "8da4w:33"],
        "prompts": [{"tokens": number, "new_tokens": 4} for number in (8, 16, 24)],
    }
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SATCHEL_CACHE", str(folder / "cache"))
        return Sweep(read_experiment(experiment), folder / "results").plan()


def record_of(job: Job, seconds: float = 2.0) -> Record:
    base: Record = {"name": name_of(job), "ok": True, "seconds": seconds}
    if isinstance(job, Export):
        return base | {"file_size_bytes": 123_456_789, "export_seconds": 1.25}
    return base | {"document": {"prefill_tok_s": 1234.5, "decode_tok_s": 56.78}}


def test_the_time_left_is_learnt_from_what_was_done(plan: Plan) -> None:
    progress = Progress(plan, clock=lambda: 0.0)
    jobs = list(jobs_in_order(plan))
    assert progress.total == len(jobs) == 2 + 6
    for job in jobs:
        planned = progress.planned[name_of(job)]
        progress.finish(name_of(job), record_of(job, planned * 3))  # three times as long
        left = sum(progress.left.values())
        kinds = {name.split("-")[0] for name in progress.left}
        if kinds == {"cell"} and any(name.startswith("cell") for name in progress.taken):
            assert progress.seconds_left() == pytest.approx(3 * left)
    assert progress.finished == progress.total and progress.seconds_left() == 0


def test_lines_tell_what_came_of_each_job(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = LineWatcher(plan, Results(tmp_path / "results"))
    jobs = list(jobs_in_order(plan))
    for job in jobs[:-1]:
        watcher.done(job, record_of(job))
    watcher.done(jobs[-1], failure(jobs[-1], "Timeout", "not done after 60 s"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(jobs)
    assert lines[0].startswith("[1/8] tiny-llama cpu fp16: exported, 123.5 MB, 1.2 s; ")
    assert any("prefill 1,234, decode 56.8 tok/s" in line for line in lines)
    assert "failed: not done after 60 s" in lines[-1]


def test_the_live_table_fits_a_terminal_of_80_columns(plan: Plan, tmp_path: Path) -> None:
    rich = pytest.importorskip("rich.console")
    watcher = LiveWatcher(plan, Results(tmp_path / "results"))
    jobs = list(jobs_in_order(plan))
    for job in jobs[:-2]:
        watcher.begun(job)
        watcher.done(job, record_of(job))
    watcher.begun(jobs[-2])
    watcher.done(jobs[-2], failure(jobs[-2], "Timeout", "not done after 60 s, " * 9))
    watcher.begun(jobs[-1])
    output = io.StringIO()
    rich.Console(file=output, width=80, force_terminal=False).print(watcher)
    lines = output.getvalue().splitlines()
    print(output.getvalue())
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("watched  7 of 8 pieces of work, 1 failed, 3 cells not possible")
    assert any("so far" in line and "left" in line for line in lines[:3])
    assert any("measuring …" in line for line in lines)
    assert any(line.rstrip().endswith("…") and "failed: not done" in line for line in lines)

    narrow = io.StringIO()
    rich.Console(file=narrow, width=40, force_terminal=False).print(watcher)
    lines = narrow.getvalue().splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert jobs[0].label in map(str.strip, lines)  # whole, what came of it is below
