"""The ready experiment that shows whether a sweep works here, from its file to its page."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from satchel.cli.main import main

HAS_RAY = find_spec("ray") is not None
SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.yaml"


def run_smoke(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> None:
    assert main(["sweep", str(SMOKE), "-o", str(folder), "--json", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["impossible"], document["cells"]) == (3, 1, 4)
    measured = [row for row in document["rows"] if row["status"] == "ok"]
    assert all(row["ppl_device"] > 1 and row["decode_tok_s"] > 0 for row in measured)
    assert main(["report", str(folder), "--json"]) == 0
    tables = {table["name"] for table in json.loads(capsys.readouterr().out)["tables"]}
    assert tables == {"prefill", "decode", "ttft", "perplexity", "memory", "size"}
    page = (folder / "report.html").read_text()
    assert "Speed against quality" in page and "48" in page


@pytest.mark.skipif(HAS_RAY, reason="it runs on Ray")
def test_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_smoke(tmp_path / "smoke", capsys)


@pytest.mark.skipif(not HAS_RAY, reason="pip install 'satchel[sweep]'")
def test_with_two_workers_of_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_smoke(tmp_path / "smoke", capsys, "--ray", "--memory", "1G")
