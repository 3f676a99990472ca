"""The page of a sweep: every cell has a figure or a reason, and differences have intervals."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from satchel.cli.main import main
from satchel.errors import ConfigError
from satchel.sweeps.report.differences import change, differences, t_quantile
from satchel.sweeps.report.formats import latex, markdown
from satchel.sweeps.report.page import write_report
from satchel.sweeps.report.plots import Plot, Point, draw, plots_of
from satchel.sweeps.report.tables import Entry, Table, tables_of
from satchel.sweeps.results import Results

AXES = {"mode": "hybrid", "prompt": "256+64", "device": "local", "thread": "0", "peer": ""}
PLANNED = {"file_bytes": 1, "export_bytes": 1, "memory_bytes": 1}


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
WORDS_IN_TWO_LINES = """() => {
  const broken = []; let words = 0;
  for (const cell of document.querySelectorAll("td"))
    for (const node of cell.childNodes)
      for (const word of (node.data || "").matchAll(/[A-Za-z0-9]+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        words += 1;
        if (range.getClientRects().length > 1) broken.push(word[0]);
      }
  return [words, broken];
}"""


def cell(key: str, **axes: Any) -> dict[str, Any]:
    """A cell of a plan, with a language model unless told otherwise."""
    return {
        "cell": key,
        "label": key,
        **AXES,
        "kind": "language",
        "model": "llama",
        "source": "random:llama",
        "recipe": "8da4w:32",
        "target": "cpu",
        "measurements": [f"cell-{key}-{number}" for number in range(3)],
        "export": None,
        "quality": None,
        "settings": {},
        "planned": PLANNED,
        "impossible": None,
        **axes,
    }


def write_results(folder: Path, cells: list[dict[str, Any]], speed: float = 1.0) -> Path:
    results, noise = Results(folder), random.Random(0)
    plan = {"name": "a <test> & more", "runs": 3, "repeats": 3, "warmup": 1}
    results.write_plan({**plan, "cells": cells})
    for each in cells:
        for number, name in enumerate(each["measurements"]):
            if each["impossible"] or each["cell"] == "failing":
                break
            factor = speed * (1 + 0.01 * noise.random())
            document: dict[str, Any] = {"peak_rss_bytes": 50e6, "threads": 2, "emulated": False}
            if each["kind"] == "vision":
                document |= {"median_s": 0.004 / factor, "p95_s": 0.005}
            else:
                document |= {"prefill_tok_s": 400 * factor, "decode_tok_s": 50 * factor}
                document |= {"ttft_s": 0.6 / factor, "load_s": 0.1}
            if each["peer"]:
                document |= {"precision": "Q4_0", "version": "peer 1.0"}
            record = {"name": name, "kind": "measurement", "ok": True, "document": document}
            record |= {"started": f"2026-01-01T00:00:0{number}Z", "seconds": 1.0, "facts": {}}
            results.add(record)
    failed = {"type": "Timeout", "message": "not done after 60 s", "advice": ""}
    results.add(
        {
            "name": "cell-failing-0",
            "kind": "measurement",
            "ok": False,
            "error": failed,
            "started": "2026-01-01T00:00:00Z",
            "seconds": 60.0,
        }
    )
    return folder


def matrix() -> list[dict[str, Any]]:
    no_chip = {"type": "BackendError", "message": "there is no <GPU> here", "advice": ""}
    return [
        cell("a"),
        cell("b", recipe="8da4w:64"),
        cell("c", target="vulkan", impossible=no_chip),
        cell("d", target="vulkan", recipe="8da4w:64", impossible=no_chip),
        cell("e", recipe="", target="", mode="", peer="llamacpp"),
        cell("failing", model="other", measurements=["cell-failing-0"]),
        cell("v", kind="vision", model="resnet50", recipe="int8", mode="", prompt=""),
    ]


def test_every_cell_has_a_figure_or_a_reason(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results", matrix())
    tables, files = write_report(folder, folder / "report.html")
    by_name = {table.name: table for table in tables}
    assert list(by_name) == ["prefill", "decode", "ttft", "memory", "latency", "vision-memory"]
    decode = by_name["decode"]
    assert decode.head == ["model", "backend", "8da4w:32", "8da4w:64", "their own"]
    texts = [[entry.text for entry in row] for row in decode.rows]
    assert texts[1][:2] == ["llama", "Satchel Vulkan"] and texts[1][2:] == ["a", "a", "–"]
    assert texts[2][1] == "llama.cpp, AVX-512 VNNI" and texts[2][4].endswith("(Q4_0)")
    assert texts[3][0] == "other" and texts[3][2] == "b"
    assert decode.notes == {"a": "there is no <GPU> here", "b": "not done after 60 s"}
    for table in tables:  # nothing is left empty without a word
        assert all(entry.text for row in table.rows for entry in row[table.labels :])

    page = (folder / "report.html").read_text()
    # On a narrow screen names are broken where their parts are joined, and words are not.
    assert (
        "8da4w:32" in page and "Satchel Vulkan" in page and "overflow-wrap:anywhere;min" not in page
    )
    assert "there is no &lt;GPU&gt; here" in page and "<GPU>" not in page
    assert "<h1>a &lt;test&gt; &amp; more</h1>" in page
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found and len(json.loads(found[1])) == len(matrix())
    assert {path.suffix for path in files} == {".md", ".tex"}
    latex = (folder / "tables" / "decode.tex").read_text()
    assert (
        r"AVX-512 VNNI" in latex and r"$^{a}$" in latex and r"\textless{}GPU\textgreater{}" in latex
    )
    columns = len(decode.head)
    body = latex.split(r"\midrule")[1].split(r"\bottomrule")[0].splitlines()
    assert all(line.count(" & ") == columns - 1 for line in body if line.endswith(r"\\"))
    markdown = (folder / "tables" / "decode.md").read_text().splitlines()
    assert {line.count("|") for line in markdown if line.startswith("|")} == {columns + 1}


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_a_narrow_screen_breaks_no_word_and_needs_no_scrolling(tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    cells = [*matrix(), cell("x", kind="vision", model="mobilenet_v3_small", recipe="int8")]
    cells.append(cell("y", recipe="", target="", mode="", peer="executorch"))
    folder = write_results(tmp_path / "results", cells)
    write_report(folder, folder / "report.html")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.goto((folder / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        words, broken = page.evaluate(WORDS_IN_TWO_LINES)
        browser.close()
    assert words > 20 and broken == []


def test_what_does_the_same_work_stands_together(tmp_path: Path) -> None:
    no_board = {"type": "DeviceError", "message": "it does not answer", "advice": ""}
    prompts = {"prompt": "8+4"}, {"prompt": "256+64"}
    cells = [
        cell("a", **prompts[0], device="ssh:board", impossible=no_board, export="made"),
        cell("b", **prompts[0], export="made"),
        cell("c", **prompts[1], export="made"),
        cell("d", **prompts[1], export="other", target="qnn:SM8750"),
        cell("e", recipe="", target="", mode="", peer="llamacpp", **prompts[0]),
        cell("f", recipe="", target="", mode="", peer="llamacpp", **prompts[1]),
    ]
    folder = write_results(tmp_path / "results", cells)
    results = Results(folder)
    for key in ("made", "other"):
        made = {"name": f"export-{key}", "kind": "export", "ok": True, "seconds": 1.0}
        results.add({**made, "file_size_bytes": 5e6})
    for name, record in results.records.items():
        if name.startswith("cell-d"):
            results.add({**record, "document": {**record["document"], "emulated": True}})
    tables, _ = write_report(folder, folder / "report.html")
    by_name = {table.name: table for table in tables}
    decode, size, memory = (by_name[name] for name in ("decode", "size", "memory"))
    assert decode.head[:4] == ["model", "device", "prompt", "backend"] and decode.work == 3
    works = [[row[3].text for row in lines] for lines in decode.groups()]
    peer = "llama.cpp, AVX-512 VNNI"
    assert works == [
        ["Satchel CPU"],
        ["Satchel CPU", peer],
        ["Satchel CPU", "Satchel QNN SM8750", peer],
    ]
    # One file for all its cells, the first of which was not possible.
    assert size.rows[0][2].text == "5.0" and not size.notes
    # What an emulator takes says nothing of the chip.
    emulated = next(row for row in memory.rows if row[3].text == "Satchel QNN SM8750")
    assert "emulator" in memory.notes[emulated[4].note]
    titles = [plot.title for plot in plots_of(results.rows())]
    assert titles == []  # no prompt has two points of ours with a file


def test_a_plot_holds_cells_that_do_the_same_work(tmp_path: Path) -> None:
    cells = [
        cell(f"{recipe}{prompt}", recipe=recipe, prompt=prompt, export=recipe)
        for recipe in ("fp16", "8da4w")
        for prompt in ("8+4", "256+64")
    ]
    cells += [cell("peer", recipe="", target="", mode="", peer="llamacpp", prompt="8+4")]
    results = Results(write_results(tmp_path / "results", cells))
    for recipe in ("fp16", "8da4w"):
        made = {"name": f"export-{recipe}", "kind": "export", "ok": True, "seconds": 1.0}
        results.add({**made, "file_size_bytes": 5e6})
    plots = plots_of(results.rows())
    assert [plot.title for plot in plots] == ["llama, 8+4", "llama, 256+64"]
    # Peers have no mode: that is no difference between ours.
    assert {point.label for plot in plots for point in plot.points} == {
        "Satchel CPU fp16",
        "Satchel CPU 8da4w",
    }


def test_the_numbers_of_points_do_not_cover_each_other() -> None:
    noise = random.Random(3)
    points = [Point("a", noise.random() * 9, noise.random() * 9) for _ in range(20)]
    points += [Point("b", point.x + 0.02, point.y) for point in points[:4]]
    drawn = draw(Plot("p", "tok/s", "perplexity", tuple(points)))
    found = re.findall(r'</circle><text x="([\d.]+)" y="([\d.]+)">(\d+)<', drawn)
    boxes = [(float(x), float(y) - 7, float(x) + 6 * len(n), float(y)) for x, y, n in found]
    touching = [
        (a, b)
        for i, a in enumerate(boxes)
        for b in boxes[:i]
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]
    assert len(boxes) == 24 and touching == []


def test_all_that_show_the_best_figure_are_bold(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results", matrix()[:2])
    for number, record in enumerate(sorted((folder / "records").glob("cell-?-?.json"))):
        document = json.loads(record.read_text())
        document["document"]["peak_rss_bytes"] = 50e6 + number  # shown as 50.0 MB
        record.write_text(json.dumps(document))
    tables, _ = write_report(folder, folder / "report.html")
    [memory] = [table for table in tables if table.name == "memory"]
    assert [entry.best for entry in memory.rows[0][memory.labels :]] == [True, True]


def test_what_has_changed_is_told_with_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_results(tmp_path / "before", matrix())
    now = write_results(tmp_path / "now", matrix(), speed=1.2)
    assert main(["report", str(now), "--against", str(before), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tables"][-1]["name"] == "differences"
    lines = (now / "tables" / "differences.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| llama Satchel CPU 8da4w:32")]
    decode = next(row for row in rows if row[1].startswith("decode"))
    assert decode[4].startswith("+2") and "better" in decode[6]
    low, high = (float(end.rstrip("%")) for end in decode[5].split(" to "))
    assert low < 20 < high and high - low < 6
    first = next(row for row in rows if row[1].startswith("first token"))
    assert "better" in first[6] and first[4].startswith("-")  # less is better


def test_what_was_lost_and_what_may_deceive_is_told(tmp_path: Path) -> None:
    before = Results(write_results(tmp_path / "before", matrix())).rows()
    lost = [{**row, "machine": "another"} for row in before]
    lost[0] |= {"status": "failed", "decode_tok_s": None}
    found = differences([{**row, "machine": "one"} for row in before], lost[:-1])
    status = [row for row in found.rows if row[1].text == "status"]
    assert [[entry.text for entry in row[2:]] for row in status] == [
        ["ok", "failed", "", "", "worse"]
    ]
    assert found.about.startswith("0 better, 1 worse, 1 cell only before. They were measured on ot")
    assert "other machines" not in differences(before, before).about


def test_intervals_are_those_of_students_distribution() -> None:
    table = {1: 12.7062, 2: 4.3027, 5: 2.5706, 10: 2.2281, 30: 2.0423}  # of any textbook
    for freedom, quantile in table.items():
        assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-4)
    assert change([1.0], [2.0, 3.0]) is None
    assert change([0.0, 0.0], [2.0, 3.0]) is None  # answers of one token have no speed
    assert change([2.0, 2.0], [4.0, 4.0]) == (1.0, 1.0, 1.0)
    scipy = pytest.importorskip("scipy.stats")
    before, now = [10.0, 10.5, 9.7, 10.2], [12.0, 11.1, 12.9]
    found = change(before, now)
    interval = scipy.ttest_ind(
        [math.log(x) for x in now], [math.log(x) for x in before], equal_var=False
    ).confidence_interval(0.95)
    assert found is not None
    assert found[1:] == pytest.approx([math.expm1(interval.low), math.expm1(interval.high)])


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    noise = random.Random(1)

    def samples(mean: float) -> list[float]:
        return [math.exp(noise.gauss(math.log(mean), 0.05)) for _ in range(4)]

    covered = 0
    for _ in range(400):
        found = change(samples(10.0), samples(11.0))
        assert found is not None
        covered += found[1] <= 0.1 <= found[2]
    assert 0.92 <= covered / 400 <= 0.985


def test_a_folder_without_a_sweep_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no results of a sweep"):
        write_report(tmp_path, tmp_path / "report.html")


def test_parquet_has_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    results = Results(write_results(tmp_path / "results", matrix()))
    results.write_tables()
    table = parquet.read_table(tmp_path / "results" / "results.parquet").to_pylist()
    for written, row in zip(table, results.rows(), strict=True):
        for key in ("cell", "status", "error", "decode_tok_s", "decode_tok_s_samples", "latency_s"):
            assert written[key] == row[key]


def test_parquet_holds_repeats_of_several_machines(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    results = Results(write_results(tmp_path / "results", matrix()[:2]))
    for name in [name for name in results.records if name.startswith("cell")]:
        cores = 64 if name == "cell-a-2" else 2  # the one of the beginning has died
        results.add({**results.records[name], "facts": {"cores": cores, "machine": f"m{cores}"}})
    results.write_tables()
    table = parquet.read_table(tmp_path / "results" / "results.parquet").to_pylist()
    assert [row["cores"] for row in table] == ["2, 64", "2"]
    assert [row["machine"] for row in table] == ["m2, m64", "m2"]


def test_the_reason_is_that_of_the_cell_that_will_have_a_figure(tmp_path: Path) -> None:
    no_phone = {"type": "DeviceError", "message": "adb is not installed", "advice": ""}
    waiting = cell("a", quality="q", measurements=["cell-a-0"])
    lost = [cell(key, quality="q", device=key, impossible=no_phone) for key in ("adb:1", "adb:2")]
    other = cell("b", model="judged", quality="p")
    results = Results(write_results(tmp_path / "results", [lost[0], waiting, lost[1], other]))
    results.forget("cell-a-0")
    judged = {"phases": {"device": {"ppl": 9.5}}, "tokens": 10}
    results.add(
        {
            "name": "quality-p",
            "kind": "quality",
            "ok": True,
            "seconds": 1.0,
            "document": judged,
        }
    )
    [table] = [t for t in tables_of(results.rows()) if t.name == "perplexity"]
    assert [row[-1].text for row in table.rows] == ["a", "9.500"]
    assert table.notes == {"a": "not run yet"}


def test_names_are_shown_as_they_are_in_markdown_and_latex() -> None:
    parser = pytest.importorskip("markdown_it")
    odd = [
        "qwen|x_3 {z}",
        "<b>",
        "*star*",
        "[a](b)",
        "_u_",
        "a\\b",
        "`c`",
        "~~s~~",
        "&amp;",
        "a\\|b",
    ]
    odd += ["mobilenet_v3_small", "--plan", "#1 $5 100% ^"]
    rows = [[Entry(name), Entry("1.0", 1.0, best=True), Entry("a", note="a")] for name in odd]
    told = "there is no <GPU> | use *cpu*"
    table = Table("t", "Title", "About _this_.", ["model", "a|b", "fp16"], 1, rows, {"a": told})
    written = markdown(table)
    found = parser.MarkdownIt("gfm-like", {"linkify": False}).parse(written)
    lines = [line.children or [] for line in found if line.type == "inline"]
    texts = ["".join(part.content for part in line) for line in lines]
    assert texts[:4] == ["Title. About _this_.", *table.head]
    assert texts[4:-1:3] == odd and texts[-1] == f"a: {told}"
    assert "mobilenet_v3_small" in written  # within a word it means nothing

    body = latex(table).split(r"\midrule")[1].split(r"\bottomrule")[0]
    begins = [line for line in body.splitlines() if line.endswith(r" \\")]
    assert [line.split(" & ")[0] for line in begins] == [
        *(r"qwen\textbar{}x\_3 \{z\}", r"\textless{}b\textgreater{}", "{*}star{*}"),
        *("{[}a{]}(b)", r"\_u\_", r"a\textbackslash{}b", r"\textasciigrave{}c\textasciigrave{}"),
        *(r"\textasciitilde{}\textasciitilde{}s\textasciitilde{}\textasciitilde{}", r"\&amp;"),
        *(r"a\textbackslash{}\textbar{}b", r"mobilenet\_v3\_small", "-{}-plan"),
        r"\#1 \$5 100\% \textasciicircum{}",
    ]


@pytest.mark.parametrize("speeds", [(13_426, 55_444), (1.2, 9.7), (99_000, 1_250_000), (3, 3)])
def test_the_numbers_below_a_plot_do_not_touch(speeds: tuple[float, float]) -> None:
    points = tuple(Point("a", speed, 1 + speed) for speed in speeds)
    drawn = draw(Plot("p", "tok/s", "perplexity", points))
    ticks = re.findall(r'<text x="([\d.]+)" y="207" text-anchor="middle">([^<]+)<', drawn)
    ends = [(float(x) - 3 * len(text), float(x) + 3 * len(text)) for x, text in ticks]
    assert len(ends) > (speeds[0] != speeds[1]) and ends[-1][1] < 340
    assert all(right < left for (_, right), (left, _) in pairwise(ends))
