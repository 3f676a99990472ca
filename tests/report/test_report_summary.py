"""The report's summary, models of other kinds, and measurements that do not add up."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

import satchel
from satchel.cli.main import main
from satchel.machine import peak_rss
from support.tiny_llm import write_tiny_llm

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tiny_llm(tmp_path_factory.mktemp("summary") / "tiny")
    return satchel.export(folder, folder.parent / "tiny.satchel", context=64)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    output = tmp_path_factory.mktemp("summary") / "network.satchel"
    return satchel.export(network.eval(), (torch.zeros(1, 8),), output)


def report(capsys: Capture, tmp_path: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["report", *map(str, arguments), "-o", str(page), "--force", "--json"]) == 0
    return page.read_text(), json.loads(capsys.readouterr().out)


def test_a_page_begins_with_what_most_people_want_to_know(
    capsys: Capture, tmp_path: Path, language: Path, module: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Pack a model once and carry it. " * 8)
    page, document = report(capsys, tmp_path, language, "--bench", "--text", text)
    summary = page.partition("<h2>Summary</h2>")[2].partition("</section>")[0]
    (program,) = document["programs"]
    wanted = f"{program['evals'][0]['phases']['device']['ppl']:.3f}"
    assert wanted in summary and "tok/s" in summary and "MB" in summary
    assert f"{date.today():%Y-%m-%d}" in summary and "cores" in summary
    assert page.index("<h2>Summary</h2>") < page.index("<h2>Programs</h2>")


def test_modules_are_measured_too_and_each_in_its_own_process(
    capsys: Capture, tmp_path: Path, language: Path, module: Path
) -> None:
    page, document = report(capsys, tmp_path, language, module, "--bench")
    first, second = (program["bench"] for program in document["programs"])
    assert first["decode_tok_s"] > 0 and second["median_s"] > 0
    # This process has torch loaded, which theirs need not have.
    assert max(first["peak_rss_bytes"], second["peak_rss_bytes"]) < peak_rss() / 2
    assert "ms a call" in page and "Speed of a call" in page


def test_what_bench_printed_is_taken(capsys: Capture, tmp_path: Path, module: Path) -> None:
    assert main(["bench", str(module), "--json"]) == 0
    results = tmp_path / "bench.json"
    results.write_text(capsys.readouterr().out)
    _, document = report(capsys, tmp_path, module, "--results", results)
    assert document["programs"][0]["bench"] == json.loads(results.read_text())


def test_rows_are_told_apart_without_colours(
    capsys: Capture, tmp_path: Path, language: Path, module: Path
) -> None:
    page, _ = report(capsys, tmp_path, language, module)
    assert re.search(r'letter">A</i> tiny', page) and re.search(r'letter">B</i> network', page)
    assert "stroke-dasharray:7 3" in page
