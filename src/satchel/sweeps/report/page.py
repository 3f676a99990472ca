"""The page of a sweep: one file with everything in it, and the tables beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.files import atomic_write, check_output
from satchel.report.page import whole_page
from satchel.report.sections import section
from satchel.sweeps.report import formats
from satchel.sweeps.report.differences import differences
from satchel.sweeps.report.plots import draw, plots_of
from satchel.sweeps.report.tables import Table, size_range, tables_of
from satchel.sweeps.results import Results, Row
from satchel.units import counted

_STYLE = """
body{max-width:1240px}nav{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:.92rem}
a{color:var(--p0);text-decoration:none}a:hover{text-decoration:underline}
td{white-space:nowrap}td.long{white-space:normal}
tr.work th{color:var(--fg);font-weight:600;padding-top:14px;white-space:normal}
tr.work span{position:sticky;left:0;display:inline-block;max-width:calc(100vw - 2rem)}
tr.work small{color:var(--soft);font-weight:400;font-size:.9em;padding-left:6px}
th.wrap{white-space:normal;min-width:8.5em;width:1%}
td:first-child{position:sticky;left:0;background:var(--bg)}
details{margin-top:10px}summary{cursor:pointer;color:var(--soft)}.points .best{color:var(--fg)}
sup{color:var(--soft);font-size:.8em;line-height:0}td b{font-weight:650}
.notes,.points{margin:6px 0 0;padding-left:1.7em;color:var(--soft);font-size:.86rem}
.notes{list-style:none;padding-left:0}.front{opacity:.6}
.chart circle.p5{fill:var(--soft);stroke:none}.chart circle.p0{stroke:none}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 16px;margin:8px 0;font-size:.92rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
@media(max-width:520px){dl{grid-template-columns:1fr}dd{margin-bottom:6px}
table{font-size:.86rem}th,td{padding-right:8px}
td:not(.n){white-space:normal}td.long{min-width:110px;overflow-wrap:anywhere}}
"""


_HOW = "Every row of results.csv has this for its own cell, and the commands to repeat it."


def write_report(
    folder: Path, output: Path, against: Path | None = None, overwrite: bool = True
) -> tuple[list[Table], list[Path]]:
    """Write the page and its tables; what they are, and where."""
    check_output(output, overwrite)
    results = Results(folder)
    rows, plan = results.rows(), results.read_plan()
    tables = tables_of(rows)
    changes = None
    if against is not None:
        changes = differences(Results(against).rows(), rows)
    page = render(rows, plan, tables, changes, against)
    with atomic_write(output, overwrite) as file:
        file.write(page.encode())
    written = []
    for table in [*tables, *([changes] if changes else [])]:
        for suffix, write in (("md", formats.markdown), ("tex", formats.latex)):
            path = output.parent / "tables" / f"{table.name}.{suffix}"
            with atomic_write(path, overwrite) as file:
                file.write(write(table).encode())
            written.append(path)
    return [*tables, *([changes] if changes else [])], written


def render(
    rows: Sequence[Row],
    plan: dict[str, Any],
    tables: Sequence[Table],
    changes: Table | None = None,
    against: Path | None = None,
) -> str:
    """The whole page. Everything that comes from a file is escaped."""
    counts = Counter(row["status"] for row in rows)
    told = [f"{counts['ok']} of {len(rows)} cells measured"]
    names = {"failed": "failed", "impossible": "not possible", "pending": "not run yet"}
    told += [f"{counts[status]} {name}" for status, name in names.items() if counts[status]]
    parts: list[str] = []
    links: list[str] = []

    def add(name: str, title: str, about: str, content: str) -> None:
        parts.append(section(title, about, content, name=name))
        links.append(f'<a href="#{escape(name)}">{escape(title)}</a>')

    for table in tables:
        add(table.name, table.title, table.about, formats.html(table))
    plots = plots_of(rows)
    if plots:
        note = (
            "Further right is faster, further down is better. The line joins the cells that no "
            "other beats in both."
        )
        drawn = "".join(map(draw, plots))
        content = f'<div class="charts">{drawn}</div>'
        add("plots", "Speed against quality", note, content)
    if changes is not None:
        about = f"{changes.about} Before: {against}."
        add(changes.name, changes.title, about, _changes(changes))
    add("how", "How it was measured", _HOW, _how(rows, plan))
    body = (
        f"<p>{escape(', '.join(told))}. A letter stands for the reason below its table; – is not "
        "part of the experiment; bold is the best of a model with the same work.</p>"
        f"<nav>{''.join(links)}</nav>{''.join(parts)}"
    )
    return whole_page(str(plan["name"]), body, list(rows), version("satchel"), _STYLE)


def _changes(changes: Table) -> str:
    """What is sure or the same in every run at once, what may be chance to be opened."""
    if not changes.rows:
        return "<p>No cell is in both.</p>"
    sure = [row for row in changes.rows if row[-1].text or not row[-2].text]
    unsure = [row for row in changes.rows if not (row[-1].text or not row[-2].text)]
    parts = [formats.html(replace(changes, rows=sure))] if sure else []
    if unsure:
        told = f"{counted(len(unsure), 'figure')} that may be the same as before"
        listed = formats.html(replace(changes, rows=unsure))
        parts.append(f"<details><summary>{told}</summary>{listed}</details>")
    return "".join(parts)


def _how(rows: Sequence[Row], plan: dict[str, Any]) -> str:
    """Machines and settings: what somebody needs to judge the figures."""

    def seen(field: str) -> str:
        values = dict.fromkeys(str(row[field]) for row in rows if row[field] is not None)
        return "; ".join(values) or "not told"

    bandwidths = [
        row[key] / 1e9
        for row in rows
        for key in ("bandwidth_before", "bandwidth_after")
        if row[key]
    ]
    warmth = [
        row[key]
        for row in rows
        for key in ("temperature_before", "temperature_after")
        if row[key] is not None
    ]
    spread = f"{min(bandwidths):.1f} to {max(bandwidths):.1f} GB/s" if bandwidths else "not told"
    degrees = f"{min(warmth):.0f} to {max(warmth):.0f} °C" if warmth else "not told"
    started = sorted(row["started"] for row in rows if row["started"])
    peers = seen("peer_version") if any(row["peer_version"] for row in rows) else ""
    versions = f"satchel {seen('satchel')}, Python {seen('python')}"
    facts = {
        "when": f"{started[0][:16]} to {started[-1][:16]}".replace("T", " ") if started else "",
        "processor": seen("cpu"),
        "governor": seen("governor"),
        "memory read, around the measurements": spread,
        "temperature": degrees,
        "kernels": seen("kernels"),
        "files": size_range(rows),
        "runs": f"{plan['runs']} in a process after {plan['warmup']} to warm up, "
        f"{counted(plan['repeats'], 'process')}",
        "versions": "; ".join(part for part in (versions, peers) if part),
    }
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items()
    )
    return f"<dl>{listed}</dl>"
