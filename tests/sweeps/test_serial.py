"""Sweeps that run one cell after the other: what they do once, what they go on from, what fails."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import yaml

import satchel
from satchel.cli.main import main
from satchel.errors import SatchelError
from satchel.sources.cache import locked
from satchel.sweeps.jobs import Export, Surroundings, program_of, run_job
from satchel.sweeps.report.tables import tables_of
from satchel.sweeps.results import Results


def by_label(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{row['model']} {row['recipe']} {row['prompt']}": row for row in rows}


def measured(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without their plans, in which the memory of the process that plans is counted."""
    return [{k: v for k, v in row.items() if not k.startswith("planned")} for row in rows]


def test_rows_have_what_is_needed_to_do_it_again(
    tiny: dict[str, Any], checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("longer than the context " * 20)
    again = shutil.copytree(checkpoint, tmp_path / "the-same-bytes")
    tiny["models"].append(str(again))
    tiny["models"].append({"source": str(checkpoint), "name": "other", "recipes": ["8da4w:33"]})
    longer = {"file": str(prompt), "new_tokens": 4}
    tiny["include"] = [{"models": [str(checkpoint)], "prompts": [longer]}]
    tiny["repeats"] = 2
    rows = by_label(satchel.sweep(tiny, tmp_path / "results"))
    first = rows["tiny-llama fp16 8+4"]
    assert first["status"] == "ok" and first["samples_of"] == "processes"
    assert len(first["decode_tok_s_samples"]) == 2
    low, high = sorted(first["decode_tok_s_samples"])
    assert first["decode_tok_s"] == pytest.approx((low + high) / 2)
    assert first["bandwidth_before"] > 1e8 and first["bandwidth_after"] > 1e8
    assert first["satchel"] == satchel.__version__ and first["cores"] >= 1

    # The same bytes by another path were exported once, and are the same program.
    records = Results(tmp_path / "results").records
    assert sum(name.startswith("export-") for name in records) == 1
    assert rows["the-same-bytes fp16 8+4"]["checksum"] == first["checksum"]
    assert rows["the-same-bytes fp16 8+4"]["source_digest"] == first["source_digest"] is not None

    # A cell that fails is a row, and so is one that could not be run at all.
    failed = rows["tiny-llama fp16 prompt.txt+4"]
    assert failed["status"] == "failed" and failed["failed_in"] == "measurement"
    assert "more than the context of 96" in failed["error"]
    impossible = rows["other 8da4w:33 8+4"]
    assert impossible["status"] == "impossible" and "33" in impossible["error"]

    # The commands of a row do the same again by hand.
    done = subprocess.run(first["bench_command"], shell=True, stdout=subprocess.PIPE, check=True)
    document = json.loads(done.stdout)
    assert document["checksum"] == first["checksum"]
    assert (document["prompt_tokens"], document["new_tokens"], document["runs"]) == (8, 4, 2)

    with (tmp_path / "results" / "results.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [row["cell"] for row in written] == [row["cell"] for row in rows.values()]
    lines = (tmp_path / "results" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == list(rows.values())

    # What failed stays so until somebody asks to try it again; all else is left alone.
    file, output = tmp_path / "mine.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump({**tiny, "name": "experiment"}))
    prompt.write_text("short")
    assert measured(satchel.sweep(file, output)) == measured(rows.values())
    assert main(["sweep", str(file), "-o", str(output), "--retry", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["failed"], document["impossible"]) == (3, 0, 1)
    better = by_label(document["rows"])
    assert better["tiny-llama fp16 prompt.txt+4"]["prompt_tokens"] < 20
    assert measured([better["tiny-llama fp16 8+4"]]) == measured([first])


def test_a_killed_sweep_goes_on_where_it_was(tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["prompts"] = [{"tokens": number, "new_tokens": 4} for number in (4, 8)]
    file, output = tmp_path / "mine.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump(tiny))
    command = [sys.executable, "-m", "satchel", "sweep", str(file), "-o", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(output.glob("records/cell-*.json")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = Results(output).records
    assert 1 <= sum(name.startswith("cell-") for name in before) < 2

    rows = satchel.sweep(file, output)
    assert [row["status"] for row in rows] == ["ok"] * 2
    after = Results(output).records
    assert {name: after[name] for name in before} == before  # nothing was done twice


def test_an_export_that_was_deleted_is_made_again_if_it_is_needed(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    output = tmp_path / "results"
    [first] = satchel.sweep(tiny, output)
    shutil.rmtree(output / "artefacts")
    assert measured(satchel.sweep(tiny, output)) == measured(
        [first]
    )  # all is measured: nothing is needed
    assert not list((output / "artefacts").glob("*.satchel"))
    rows = satchel.sweep({**tiny, "prompts": [*tiny["prompts"], 6]}, output)
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert rows[1]["checksum"] == first["checksum"] and rows[0]["started"] == first["started"]


def test_other_bytes_of_a_checkpoint_are_another_export(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    source = shutil.copytree(tiny["models"][0], tmp_path / "checkpoint")
    given = {**tiny, "models": [str(source)]}
    [first] = satchel.sweep(given, tmp_path / "results")
    [weights] = source.glob("*.safetensors")
    before, content = weights.stat(), bytearray(weights.read_bytes())
    content[-1] ^= 1  # of the same size and age, as archives leave files
    weights.write_bytes(content)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    [second] = satchel.sweep(given, tmp_path / "results")
    assert second["status"] == "ok"
    assert second["source_digest"] != first["source_digest"]
    assert second["checksum"] != first["checksum"]


def test_modules_have_no_prompts_and_their_latency_is_in_the_tables(tmp_path: Path) -> None:
    program = tmp_path / "one.satchel"
    onnx = pytest.importorskip("onnx")
    weights = np.eye(4, dtype=np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    satchel.export(tmp_path / "m.onnx", program)
    models = [str(program), str(tmp_path / "m.onnx")]
    rows = satchel.sweep({"models": models, "recipes": ["fp32"], "runs": 2}, tmp_path / "results")
    assert [(row["status"], row["kind"], row["prompt"]) for row in rows] == [
        ("ok", "vision", "")
    ] * 2
    [latency] = [table for table in tables_of(rows) if table.name == "latency"]
    assert [row[0].text for row in latency.rows] == ["one", "m.onnx"]
    assert all(any(entry.value for entry in row) for row in latency.rows)


def test_the_plan_runs_nothing(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny["recipes"] = ["fp16", "8da4w:33"]
    tiny["models"] += ["qwen3-4b", "hf:nobody/nothing", "no-such-model"]
    tiny["prompts"] = [{"tokens": 8, "new_tokens": 4}, 4096, "nowhere.txt"]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(tiny))
    assert main(["sweep", str(file), "-o", str(tmp_path / "results"), "--plan", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "results").exists()
    cells = {f"{c['model']} {c['recipe']} {c['prompt']}": c for c in document["cells"]}
    exact = cells["tiny-llama fp16 8+4"]
    assert exact["impossible"] is None and not exact["planned"]["rough"]
    made = satchel.export(tiny["models"][0], tmp_path / "x.satchel", recipe="fp16", context=96)
    assert exact["planned"]["file_bytes"] == pytest.approx(made.stat().st_size, rel=0.02)
    assert (
        "more than the context of 96" in cells["tiny-llama fp16 4096+64"]["impossible"]["message"]
    )
    assert "33" in cells["tiny-llama 8da4w:33 8+4"]["impossible"]["message"]
    assert "no-such-model" in cells["no-such-model fp16 8+4"]["impossible"]["message"]
    nowhere = cells["tiny-llama fp16 nowhere.txt+64"]["impossible"]["message"]
    assert nowhere == "the prompt nowhere.txt is no file"
    # What has not been fetched is estimated, and stays where it is.
    assert cells["qwen3-4b fp16 8+4"]["planned"]["rough"]
    assert cells["qwen3-4b fp16 8+4"]["planned"]["file_bytes"] > 7e9
    assert cells["nothing fp16 8+4"]["planned"]["file_bytes"] is None


def test_a_text_that_is_not_there_is_told_before_anything_is_done(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(SatchelError, match=r"quality: text: nowhere\.txt is no file"):
        satchel.sweep({**tiny, "quality": {"text": "nowhere.txt"}}, tmp_path / "results")
    if find_spec("lm_eval") is None:
        with pytest.raises(SatchelError, match="tasks need lm-eval"):
            satchel.sweep({**tiny, "quality": {"tasks": ["arc_easy"]}}, tmp_path / "results")
    assert not (tmp_path / "results" / "records").exists()


def test_a_store_may_be_an_address_of_fsspec(checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    address = (tmp_path / "bucket").as_uri()
    around = Surroundings(address, str(tmp_path / "logs"))
    job = Export("key", "tiny", {"source": str(checkpoint), "recipe": "fp16", "context": 96})
    first = run_job(job, around)
    kept = {path.name for path in (tmp_path / "bucket").iterdir()}
    assert first["ok"] and kept == {"key.satchel", "key.json", "key.yaml"}
    # Another machine, with a cache of its own, finds the export there and does not make it again.
    shutil.rmtree(tmp_path / "cache")
    second = run_job(job, around)
    assert second["checksum"] == first["checksum"]
    assert second["export_seconds"] == first["export_seconds"]
    assert satchel.load(program_of(job, around)).checksum == first["checksum"]


def test_two_sweeps_do_not_share_a_folder(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(tiny))
    with locked(tmp_path / "results"):
        with pytest.raises(SatchelError, match="another sweep is writing"):
            satchel.sweep(tiny, tmp_path / "results")
        assert main(["sweep", str(file), "-o", str(tmp_path / "results")]) == 1
    # Nor is anything planned for the second, which may take minutes.
    assert capsys.readouterr().err.startswith("satchel: another sweep is writing")


def test_results_that_cannot_be_written_are_told_before_anything_is_done(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SatchelError, match="file is not a folder"):
        satchel.sweep(tiny, tmp_path / "file")
    with pytest.raises(SatchelError, match="file is not a folder"):
        satchel.sweep(tiny, tmp_path / "results", store=str(tmp_path / "file"))
    if find_spec("ray"):
        with pytest.raises(SatchelError, match=r"no Ray cluster answers at 127\.0\.0\.1:1: "):
            satchel.sweep(tiny, tmp_path / "results", ray="127.0.0.1:1")
        shutil.rmtree(tmp_path / "results")
    with pytest.raises(SatchelError, match="nowhere://x cannot be opened|needs fsspec"):
        satchel.sweep(tiny, tmp_path / "results", store="nowhere://x")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(SatchelError, match="is not writable"):
        satchel.sweep(tiny, tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("what", ["reads", "plans"])
def test_who_interrupts_it_at_once_sees_no_traceback(
    what: str, tiny: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(tiny))
    hook = "satchel.cli.main.build_parser" if what == "reads" else "satchel.cli.sweep.say"
    code = (
        "import os, signal, sys, threading, time, unittest.mock as mock\n"
        "import satchel.cli.main, satchel.cli.sweep\n"
        "def interrupted(*_):\n"  # as a terminal does: all processes of the group
        "    threading.Timer(2.0, os.killpg, (0, signal.SIGINT)).start()\n"
        f"    {what == 'reads'} and time.sleep(60)\n"
        f"mock.patch('{hook}', interrupted).start()\n"
        f"sys.exit(satchel.cli.main.main(['sweep', {str(file)!r}, '--plan']))\n"
    )
    (tmp_path / "sitecustomize.py").write_text(  # the process that plans takes its time
        "import sys, time\n'-m' in sys.orig_argv and time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 130 and "interrupted" in done.stderr
    assert "Traceback" not in done.stderr


def test_who_interrupts_a_sweep_is_told_that_it_goes_on(
    tiny: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, output = tmp_path / "mine.yaml", tmp_path / "results"
    file.write_text(yaml.safe_dump(tiny))
    with monkeypatch.context() as patched:
        # As Ctrl-C does, when the export is done and the cell is being measured.
        patched.setattr("satchel.sweeps.jobs._measure", Mock(side_effect=KeyboardInterrupt))
        assert main(["sweep", str(file), "-o", str(output)]) == 130
    assert "What is done is kept: the same command goes on from there" in capsys.readouterr().err
    assert [row["status"] for row in Results(output).rows()] == ["pending"]
    assert "pending" in (output / "results.csv").read_text()
    plan = json.loads((output / "plan.json").read_text())
    (output / "plan.json").write_text(json.dumps({**plan, "satchel": "0.0.1"}))
    assert main(["sweep", str(file), "-o", str(output)]) == 0
    told = capsys.readouterr().err
    assert "going on: 1 of 2 pieces of work are done" in told
    assert f"{output} is of Satchel 0.0.1" in told  # as if another version had been here
