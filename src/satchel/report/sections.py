"""The sections of a report: each takes the programs and gives HTML, or nothing to show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import PurePath
from typing import Any

from satchel.cli.output import count
from satchel.report.charts import bar, line_chart, stacked_bar
from satchel.report.document import is_module_bench
from satchel.units import megabytes

Programs = Sequence[dict[str, Any]]

_MOST_KINDS = 40  # a module of many layers has no kinds but names; the worst are shown


def section(title: str, note: str, *content: str, name: str = "") -> str:
    """``name`` is what a link may lead to."""
    place = f' id="{escape(name)}"' if name else ""
    head = f"<h2>{escape(title)}</h2><p>{escape(note)}</p>"
    return f"<section{place}>{head}{''.join(content)}</section>"


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Coloured squares with their meaning."""
    keys = (
        f'<span><i class="key k {escape(css)}"></i>{escape(label)}</span>' for label, css in entries
    )
    return f'<div class="legend">{"".join(keys)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 1) -> str:
    """Cells are HTML already. All but the first ``numbers`` columns are set to the right, except
    bars."""

    def cell(tag: str, text: str, column: int) -> str:
        wide = text.startswith("<svg")
        css = ' class="w"' if wide else ' class="n"' if column >= numbers else ""
        return f"<{tag}{css}>{text}</{tag}>"

    top = "".join(cell("th", escape(text), i) for i, text in enumerate(head))
    body = "".join(
        "<tr>" + "".join(cell("td", text, i) for i, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    css = ' class="bars"' if "<svg" in body else ""
    return f'<div class="scroll"><table{css}><tr>{top}</tr>{body}</table></div>'


def _named(program: dict[str, Any]) -> str:
    key = f'<i class="key k p{program["colour"]} letter">{escape(program["letter"])}</i>'
    return f'<span class="name">{key} {escape(program["label"])}</span>'


def summary_section(programs: Programs, machine: str, day: str) -> str:
    """What most people want to know, before all the rest."""

    def row(p: dict[str, Any]) -> list[str]:
        bench = p["bench"] or {}
        perplexities = [e["phases"]["device"]["ppl"] for e in p["evals"] if "device" in e["phases"]]
        speed = ""
        if "decode_tok_s" in bench:
            speed = f"{bench['decode_tok_s']:,.1f} tok/s"
        elif bench:
            speed = f"{bench['median_s'] * 1000:,.2f} ms a call"
        return [
            _named(p),
            megabytes(p["file_size_bytes"]),
            speed,
            megabytes(bench["peak_rss_bytes"]) if bench else "",
            f"{perplexities[0]:.3f}" if perplexities else "",
        ]

    head = ["program", "file", "speed", "peak memory", "perplexity"]
    note = f"{day}, on {machine}. What was not measured is left empty."
    return section("Summary", note, table(head, map(row, programs)))


def programs_section(programs: Programs) -> str:
    def row(p: dict[str, Any]) -> list[str]:
        context = p["context"]
        return [
            _named(p),
            escape(str(p["architecture"] or "")),
            escape(str(p["recipe"] or "none")),
            escape(str(p["target"] or "")),
            count(p["parameters"]) if isinstance(p["parameters"], int) else "",
            f"{context:,}" if isinstance(context, int) else "",
            megabytes(p["file_size_bytes"]),
            f'<span class="code">{escape(p["checksum"][:12])}</span>',
        ]

    head = ["program", "model", "recipe", "target", "parameters", "context", "file", "checksum"]
    return section(
        "Programs",
        "The checksum stands for the whole file, its weights included.",
        table(head, map(row, programs), numbers=4),
    )


def size_section(programs: Programs) -> str:
    names = list(dict.fromkeys(part for p in programs for part in p["parts"]))
    colours = {name: f"s{min(i, 7)}" for i, name in enumerate(names)}
    largest = max(p["file_size_bytes"] for p in programs)
    bars = []
    for p in programs:
        parts = [
            (f"{name}: {megabytes(size)}", size, colours[name]) for name, size in p["parts"].items()
        ]
        bars.append(
            f'<div class="row">{_named(p)} <small>{megabytes(p["file_size_bytes"])}</small>'
            f"{stacked_bar(parts, largest)}</div>"
        )
    rows = [
        [
            f'<i class="key k {colours[name]}"></i> {escape(name)}',
            *(megabytes(p["parts"][name]) if name in p["parts"] else "" for p in programs),
        ]
        for name in names
    ]
    return section(
        "Size",
        "Bytes of the file by what they are for. A head that is tied to the embedding is stored "
        "once, as the embedding.",
        *bars,
        table(["part", *(p["label"] for p in programs)], rows),
    )


# Field of a bench, what it is called, and how a value is written.
_SPEEDS = (
    ("decode_tok_s", "decode, tok/s", "{:,.1f}"),
    ("prefill_tok_s", "prefill, tok/s", "{:,.1f}"),
    ("ttft_s", "time to first token, s", "{:.3f}"),
    ("bandwidth_share", "share of the read bandwidth", "{:.0%}"),
)


def speed_section(programs: Programs) -> str:
    modules = _module_speeds([p for p in programs if p["bench"] and is_module_bench(p["bench"])])
    measured = [p for p in programs if p["bench"] and not is_module_bench(p["bench"])]
    if not measured:
        return modules
    parts = []
    for field, name, form in _SPEEDS:
        most = max(p["bench"][field] for p in measured)
        rows = [
            [
                _named(p),
                bar(_share(p["bench"][field], most), f"p{p['colour']}"),
                form.format(p["bench"][field]),
            ]
            for p in measured
        ]
        parts.append(table([name, "", ""], rows))
    memory = [[_named(p), megabytes(p["bench"]["peak_rss_bytes"])] for p in measured]
    parts.append(table(["peak memory", ""], memory))
    first = measured[0]["bench"]
    how = {
        f"{b['prompt_tokens']} prompt and {b['new_tokens']} new tokens, {b['threads']} threads, "
        f"{b.get('kernels')} kernels"
        for b in (p["bench"] for p in measured)
    }
    note = how.pop() if len(how) == 1 else "Measured in different ways: compare with care"
    guessing = [p for p in measured if p["bench"].get("lookahead")]
    if guessing:
        rows = [
            [
                _named(p),
                f"{p['bench']['lookahead']['speedup']:.2f} times plain decoding",
                f"{p['bench']['lookahead']['tokens_per_step']:.2f} tokens a step",
            ]
            for p in guessing
        ]
        parts.append(table(["lookahead", "", ""], rows))
    return section("Speed", f"{note}; medians of {first['runs']} runs.", *parts) + modules


def _module_speeds(programs: Programs) -> str:
    """One call of models that are no language models."""
    if not programs:
        return ""
    most = max(p["bench"]["median_s"] for p in programs)
    rows = [
        [
            _named(p),
            bar(_share(p["bench"]["median_s"], most), f"p{p['colour']}"),
            f"{p['bench']['median_s'] * 1000:,.2f} ms",
            f"{p['bench']['calls_s']:,.1f} a second",
            megabytes(p["bench"]["peak_rss_bytes"]),
        ]
        for p in programs
    ]
    head = ["one call", "", "median", "calls", "peak memory"]
    return section("Speed of a call", "Shorter is faster; inputs are random.", table(head, rows))


def quality_section(programs: Programs) -> str:
    found = [(p, e) for p in programs for e in p["evals"] if e["phases"]]
    if not found:
        return ""
    parts = []
    cuts = {_cut(e): e for _, e in found}
    for key, example in cuts.items():
        rows = []
        same = [(p, e) for p, e in found if _cut(e) == key]
        most = max(phase["ppl"] for _, e in same for phase in e["phases"].values())
        for p, e in same:
            plain, name = e["phases"].get("fp"), _named(p)
            for phase, value in e["phases"].items():
                over = f"{value['ppl'] - plain['ppl']:+.3f}" if plain and phase != "fp" else ""
                rows.append(
                    [
                        name,
                        escape(phase),
                        bar(_share(value["ppl"], most), f"p{p['colour']}"),
                        f"{value['ppl']:.3f}",
                        over,
                    ]
                )
                name = ""
        text = escape(PurePath(str(example.get("text"))).name)
        size = f"{example['tokens']:,} tokens in windows of {example['window']:,}"
        parts.append(f"<h3>{text}, {size}</h3>")
        parts.append(table(["program", "phase", "", "perplexity", "over fp"], rows, numbers=2))
    note = (
        "Lower is better. fp is the float model, qdq the same with weights and activations "
        "rounded, device what really runs."
    )
    return section("Perplexity", note, *parts)


def _cut(result: dict[str, Any]) -> tuple[str, ...]:
    """Perplexities can be compared if the same text was cut in the same way."""
    return tuple(str(result.get(name)) for name in ("text_digest", "window", "stride"))


def tasks_section(programs: Programs) -> str:
    rows = [
        [_named(p), escape(task), escape(phase), escape(metric), _score(value)]
        for p in programs
        for e in p["evals"]
        for task, by_phase in e["tasks"].items()
        for phase, metrics in by_phase.items()
        for metric, value in metrics.items()
        if not metric.endswith("stderr")
    ]
    if not rows:
        return ""
    head = ["program", "task", "phase", "metric", "value"]
    return section("Tasks", "As satchel eval measured them.", table(head, rows, numbers=4))


def _score(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else escape(str(value))


def decibels(error: float) -> float | None:
    """Signal over noise, 20 dB for a relative error of a tenth; None for no error at all.

    >>> round(decibels(0.1))
    20
    """
    return -20 * math.log10(error) if error > 0 else None


def errors_section(programs: Programs) -> str:
    kinds = list(dict.fromkeys(kind for p in programs for kind in p["weight_error"]))
    shown = {k: [p["weight_error"].get(k, 0.0) for p in programs] for k in kinds}
    lossy = sorted((k for k in kinds if any(shown[k])), key=lambda k: -max(shown[k]))
    if not lossy:
        return ""
    most = max(max(shown[k]) for k in lossy)
    rows = []
    for kind in lossy[:_MOST_KINDS]:
        name = f'<span class="code">{escape(short_kind(kind))}</span>'
        for p, error in zip(programs, shown[kind], strict=True):
            if kind in p["weight_error"]:
                noise = decibels(error)
                rows.append(
                    [
                        name,
                        bar(_share(error, most), f"p{p['colour']}", p["label"]),
                        f"{error:.4f}",
                        "exact" if noise is None else f"{noise:.1f} dB",
                    ]
                )
                name = ""  # once for all programs
    return section(
        "Weight error by kind of layer",
        "How far the stored weights are from the checkpoint's: root mean square of the difference "
        "over that of the weights, and the same as signal over noise. It is not yet a loss of "
        "quality: that is the perplexity.",
        table(["kind of layer", "", "relative", "signal"], rows),
    )


def layers_section(programs: Programs) -> str:
    kinds = list(dict.fromkeys(kind for p in programs for kind in p["layer_error"]))
    values = [
        noise
        for p in programs
        for errors in p["layer_error"].values()
        for noise in map(decibels, errors)
        if noise is not None
    ]
    if not values:
        return ""
    charts = []
    for kind in kinds:
        lines = {
            f"p{p['colour']}": [decibels(e) for e in p["layer_error"][kind]]
            for p in programs
            if kind in p["layer_error"]
        }
        chart = line_chart(lines, "dB", min(values), max(values))
        charts.append(f'<div><h3 class="code">{escape(short_kind(kind))}</h3>{chart}</div>')
    return section(
        "Weight error by layer",
        "Signal over noise of the stored weights, from the first layer to the last; higher is "
        "better, 6 dB are half the error. All plots have the same scale.",
        f'<div class="charts">{"".join(charts)}</div>',
    )


def placement_section(programs: Programs) -> str:
    rows = []
    falls = []
    for p in programs:
        nodes = p["placement"].get("nodes") or {}
        total = sum(nodes.values())
        for i, (where, number) in enumerate(nodes.items()):
            rows.append(
                [
                    _named(p),
                    escape(str(where)),
                    bar(_share(number, total), f"s{min(i, 7)}"),
                    f"{number:,}",
                ]
            )
        for fall in p["placement"].get("fallbacks") or []:
            known = fall if isinstance(fall, dict) else {"reason": fall}
            falls.append(
                [
                    _named(p),
                    escape(str(known.get("op", ""))),
                    escape(str(known.get("reason", ""))),
                    escape(str(known.get("nodes", ""))),
                ]
            )
    if not rows:
        return ""
    parts = [table(["program", "runs on", "", "nodes"], rows, numbers=2)]
    if falls:
        parts.append(table(["program", "falls back", "because", "nodes"], falls, numbers=3))
    note = "Where the nodes of all methods run." + ("" if falls else " Nothing falls back.")
    return section("Placement", note, *parts)


def short_kind(kind: str) -> str:
    """
    >>> short_kind("model.layers.*.mlp.up_proj.weight")
    'layers.*.mlp.up_proj'
    """
    return kind.removeprefix("model.").removesuffix(".weight")


def _share(value: float, most: float) -> float:
    return value / most if most else 0.0
