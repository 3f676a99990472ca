"""The page that satchel report writes: whole, closed in itself, and with the right numbers."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.cli.main import main
from satchel.program.writer import ProgramWriter
from satchel.report.charts import line_chart
from satchel.report.document import size_by_part
from satchel.runtime.program import Program
from satchel.units import megabytes
from support.programs import encode_array
from support.small_program import ENCODINGS, TOKENIZER, WEIGHTS, graphs
from support.tiny_llm import write_tiny_llm

VOID = {"meta", "br", "hr", "img", "input", "link", "rect", "line", "circle", "polyline"}
HOSTILE = "<script>alert('x')</script>\"&amp;</title>"


class Page(HTMLParser):
    """Fails on tags that do not match, and keeps text, tags and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], "tags that are never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "rect" or tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.text += data + "\n"


def check_closed(page: str) -> Page:
    """Parsed, and proven to ask for nothing outside and to execute nothing."""
    parsed = Page(page)
    names = {name for name, _ in parsed.attributes}
    assert not names & {"src", "href", "srcset", "action", "xlink:href", "style"}
    assert not any(name.startswith("on") for name in names)
    shown = page.partition("<script")[0]
    assert not re.search(r"url\(|@import|https?:|//[a-z]", shown, re.I)
    assert parsed.tags.count("script") == 1 and len(parsed.scripts) == 1
    assert ("type", "application/json") in parsed.attributes
    return parsed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("report")
    checkpoint = write_tiny_llm(folder / "tiny")
    return [
        satchel.export(checkpoint, folder / f"tiny-{r}.satchel", recipe=r, context=96)
        for r in ("8da4w", "fp16")
    ]


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_numbers_are_those_of_the_other_commands(
    capsys: pytest.CaptureFixture[str],
    made: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("Pack a model once, and carry it to any chip. " * 3)
    results, inspected = [], []
    for number, path in enumerate(made):
        call = ("eval", path, "--text", text, "--window", 32, "--phases", "qdq,device")
        evaluated = command(capsys, *call)
        benched = command(capsys, "bench", path, "--prompt-tokens", 8, "--new-tokens", 8)
        inspected.append(command(capsys, "inspect", path))
        for kind, document in (("eval", evaluated), ("bench", benched)):
            saved = tmp_path / f"{kind}{number}.json"
            saved.write_text(json.dumps(document))
            results += ["--results", saved]
    output = tmp_path / "report.html"
    printed = command(capsys, "report", *made, "-o", output, *results)
    page = check_closed(output.read_text(encoding="utf-8"))
    assert printed["output"] == str(output)
    for shown, inspect, path in zip(printed["programs"], inspected, made, strict=True):
        assert shown["checksum"] == inspect["checksum"]
        assert shown["file_size_bytes"] == inspect["file_size_bytes"] == path.stat().st_size
        assert sum(shown["parts"].values()) == shown["file_size_bytes"]
        assert shown["weight_error"] == inspect["weight_error"]
        assert shown["placement"] == inspect["placement"]
        for value in (
            path.stem,
            inspect["checksum"][:12],
            megabytes(inspect["file_size_bytes"]),
            f"{shown['bench']['decode_tok_s']:,.1f}",
            f"{shown['evals'][0]['phases']['device']['ppl']:.3f}",
            f"{shown['evals'][0]['phases']['qdq']['ppl']:.3f}",
            *(megabytes(size) for size in shown["parts"].values()),
            *(f"{error:.4f}" for error in inspect["weight_error"].values()),
        ):
            assert value in page.text
    data = json.loads(page.scripts[0])
    assert [p["bench"] for p in data] == [p["bench"] for p in printed["programs"]]
    # Two layers, seven kinds; a plot for each kind with a line for each program.
    assert set(map(len, data[0]["layer_error"].values())) == {2}
    assert page.tags.count("polyline") == 2 * len(data[0]["layer_error"]) == 14


def test_errors_by_layer_are_those_of_the_weights(made: list[Path]) -> None:
    """From the program alone: the two layers' squares add up to the kind's."""
    metadata = Program(made[0]).metadata
    assert metadata["layer_error"]
    for kind, errors in metadata["layer_error"].items():
        mean = math.sqrt(sum(e * e for e in errors) / len(errors))
        assert mean == pytest.approx(metadata["weight_error"][kind], rel=0.02)


def test_measured_now(capsys: pytest.CaptureFixture[str], made: list[Path], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Pack a model once, and carry it to any chip. " * 3)
    output = tmp_path / "r.html"
    call = ("report", made[0], "-o", output, "--bench", "--text", text, "--limit", 20)
    (program,) = command(capsys, *call)["programs"]
    assert program["bench"]["decode_tok_s"] > 0
    assert program["evals"][0]["tokens"] == 19
    assert "Speed" in check_closed(output.read_text(encoding="utf-8")).text


def test_nothing_of_a_file_becomes_markup(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    metadata = {
        "kind": HOSTILE,
        "name": HOSTILE,
        "architecture": HOSTILE,
        "recipe": {"description": HOSTILE},
        "target": HOSTILE,
        "context": 3,
        "parameters": 5,
        "weight_error": {HOSTILE: 0.5, "endless": 1e999, "below": -1},
        "layer_error": {HOSTILE: [0.1, 0.2], "none": []},
        "placement": {
            "nodes": {HOSTILE: 3},
            "fallbacks": [{"op": HOSTILE, "reason": HOSTILE, "nodes": 2}],
        },
    }
    path = tmp_path / "a<b>&'\".satchel"

    def encode(weight: Any, encoding: Any) -> Any:
        yield from encode_array(WEIGHTS[weight.name], encoding)

    ProgramWriter(graphs(), ENCODINGS, TOKENIZER).write(path, encode, lambda: metadata)
    checksum = Program(path).checksum
    phases = {HOSTILE: {"ppl": 3.0}}
    tasks = {HOSTILE: {HOSTILE: {HOSTILE: HOSTILE}}}
    results = {"checksum": checksum, "phases": phases, "tasks": tasks, "tokens": 5, "window": 9}
    saved = tmp_path / "results.json"
    saved.write_text(json.dumps({**results, "text": HOSTILE}))
    output = tmp_path / "r.html"
    command(capsys, "report", path, "-o", output, "--results", saved)
    page = check_closed(output.read_text(encoding="utf-8"))
    assert page.text.count(HOSTILE) >= 8
    assert json.loads(page.scripts[0])[0]["name"] == HOSTILE
    for odd in ({"recipe": "x"}, {"placement": []}, {"weight_error": 3}, {"layer_error": {"a": 3}}):
        ProgramWriter(graphs(), ENCODINGS, TOKENIZER).write(path, encode, lambda m=odd: m, True)
        assert main(["report", str(path), "-o", str(output), "--force"]) == 1
        assert "the metadata's" in capsys.readouterr().err


def test_parts_of_a_module_are_its_children(tmp_path: Path) -> None:
    def encode(weight: Any, encoding: Any) -> Any:
        yield from encode_array(WEIGHTS[weight.name], encoding)

    path = tmp_path / "m.satchel"
    ProgramWriter(graphs(), ENCODINGS).write(path, encode, lambda: {"kind": "module"})
    parts = size_by_part(Program(path))
    assert len(parts) == 7 and "other weights" in parts and "tokenizer" not in parts
    assert sum(parts.values()) == path.stat().st_size


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no results"),
        ('{"checksum": 3}', "holds no results"),
        ('{"checksum": "x"}', "neither a bench's nor an eval's"),
        ('{"checksum": "x", "phases": {"fp": {"ppl": "1"}}, "tasks": {}}', "neither a bench's"),
        ('{"checksum": "x", "phases": {}, "tasks": {"a": {"fp": 3}}}', "neither a bench's"),
        ('{"checksum": "x", "phases": {}, "tasks": {}}', "another program"),
    ],
)
def test_wrong_results(
    capsys: pytest.CaptureFixture[str],
    made: list[Path],
    tmp_path: Path,
    content: str,
    message: str,
) -> None:
    saved, output = tmp_path / "r.json", tmp_path / "r.html"
    saved.write_text(content)
    assert main(["report", str(made[0]), "-o", str(output), "--results", str(saved)]) == 1
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_a_page_is_not_overwritten(
    capsys: pytest.CaptureFixture[str], made: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "r.html"
    output.write_text("mine")
    assert main(["report", str(made[0]), "-o", str(output)]) == 1
    assert "exists" in capsys.readouterr().err and output.read_text() == "mine"
    assert main(["report", str(made[0]), "-o", str(output), "--force"]) == 0
    check_closed(output.read_text(encoding="utf-8"))


def test_a_plot_of_one_layer_and_of_gaps() -> None:
    for lines in ({"p0": [20.0]}, {"p0": [20.0, None, 22.0], "p1": [None, 21.0]}, {"p0": []}):
        chart = line_chart(lines, "dB", 20.0, 22.0)
        assert "nan" not in chart and "inf" not in chart
        assert chart.count("<circle") == sum(v is not None for vs in lines.values() for v in vs)
    assert "nan" not in line_chart({"p0": [5.0, 5.0]}, "dB", 5.0, 5.0)
