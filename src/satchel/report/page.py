"""The report's page: one HTML file with everything in it, for light and dark screens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from satchel.report.sections import (
    errors_section,
    layers_section,
    legend,
    placement_section,
    programs_section,
    quality_section,
    size_section,
    speed_section,
    summary_section,
    tasks_section,
)

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#5c6670;--rule:#e2e6ea;--track:#f0f2f5;
--p0:#2563c9;--p1:#d9622b;--p2:#2f9463;--p3:#8a4fc4;--p4:#c2487e;--p5:#7a7d29;
--s0:#3f6fb5;--s1:#5aa7c7;--s2:#e0a03a;--s3:#c9603c;--s4:#8d6bb8;--s5:#6d9a4c;--s6:#9aa3ad;--s7:#c5ccd3}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ec;--soft:#9aa4ae;--rule:#2b3138;
--track:#20252b;--p0:#6ea2f2;--p1:#f0905c;--p2:#5fc291;--p3:#b78ae6;--p4:#e87fae;--p5:#b5b85a;
--s0:#6b97d6;--s1:#74bfdd;--s2:#e6b75f;--s3:#e08a68;--s4:#b095d6;--s5:#94bf73;--s6:#7d8791;--s7:#56606a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:24px 20px 60px;max-width:1040px;background:var(--bg);color:var(--fg);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;margin:0 0 2px}h2{font-size:1.12rem;margin:38px 0 4px}
h3{font-size:.92rem;margin:0 0 4px;font-weight:600}
p{margin:0 0 12px;color:var(--soft);max-width:46rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:500;color:var(--soft);white-space:nowrap}
td.n,th.n{text-align:right;white-space:nowrap}
td.n:last-child,th.n:last-child{padding-right:0}
td.w{width:50%;min-width:110px;vertical-align:middle}
.bars td:first-child{width:28%}.name{white-space:nowrap}td.long{min-width:150px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:6px 0 12px;font-size:.88rem}
.legend span{display:inline-flex;align-items:center;gap:6px}
.key{display:inline-block;width:11px;height:11px;border-radius:3px;flex:none}
.letter{width:auto;min-width:17px;height:17px;padding:0 4px;line-height:17px;font-size:.72rem;
font-style:normal;font-weight:600;text-align:center;color:var(--bg)}
.bar{display:block;width:100%;height:12px;background:var(--track);border-radius:3px}
.bar.tall{height:24px}
.row{margin:10px 0}.row b{font-weight:600}.row small{color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:18px 26px}
.chart{display:block;width:100%;height:auto}
.chart text{fill:var(--soft);font-size:10.5px}
.grid{stroke:var(--rule);stroke-width:1}
.line{fill:none!important;stroke-width:1.8;stroke-linejoin:round}
.code{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.86em;overflow-wrap:anywhere}
footer{margin-top:44px;color:var(--soft);font-size:.85rem}
@media(max-width:520px){body{padding:16px 14px 40px;font-size:14.5px}
th,td{padding-right:10px}td.w{min-width:70px;width:34%}.name{white-space:normal}}
"""


_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 2", "1 4")  # lines without their colours


def _colours() -> str:
    programs = "".join(
        f".p{i}{{fill:var(--p{i});stroke:var(--p{i})}}.k.p{i}{{background:var(--p{i})}}"
        f".line.p{i}{{stroke-dasharray:{_DASHES[i]}}}"
        for i in range(6)
    )
    parts = "".join(f".s{i}{{fill:var(--s{i})}}.k.s{i}{{background:var(--s{i})}}" for i in range(8))
    return programs + parts + "rect{stroke:none!important}"


def render(programs: Sequence[dict[str, Any]], version: str, machine: str, day: str) -> str:
    """The whole page. Everything that comes from a file is escaped."""
    sections = [
        summary_section(programs, machine, day),
        programs_section(programs),
        size_section(programs),
        speed_section(programs),
        quality_section(programs),
        tasks_section(programs),
        errors_section(programs),
        layers_section(programs),
        placement_section(programs),
    ]
    title = ", ".join(dict.fromkeys(str(p["name"]) for p in programs))
    count = f"{len(programs)} programs side by side" if len(programs) > 1 else "One program"
    body = (
        f"<p>{count}. Letters, colours and dashes stand for the same program throughout.</p>"
        + legend([(f"{p['letter']}  {p['label']}", f"p{p['colour']}") for p in programs])
        + "\n".join(section for section in sections if section)
    )
    return whole_page(title, body, programs, version)


def whole_page(title: str, body: str, data: object, version: str, style: str = "") -> str:
    """A page with its style and its data in it; ``body`` is HTML."""
    # Not executed: data for whoever wants the numbers. No tag can begin in it.
    numbers = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)} · Satchel report</title>"
        f"<style>{_STYLE}{_colours()}{style}</style></head>\n<body><h1>{escape(title)}</h1>"
        f"{body}\n<footer>Made by satchel {escape(version)}.</footer>"
        f'<script type="application/json" id="data">{numbers}</script></body></html>\n'
    )
