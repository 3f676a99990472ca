"""Speed against quality, a plot for each model and device, with the line of the best trades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from satchel.report.charts import Frame, nice_ticks
from satchel.sweeps.report.tables import backend_of
from satchel.sweeps.results import Row

_LETTER = 6.3  # the width of a digit in a chart


@dataclass(frozen=True)
class Point:
    """A cell in a plot: further right is faster, further down is better."""

    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Plot:
    """All cells of a model on a device."""

    title: str
    x_name: str
    y_name: str
    points: tuple[Point, ...]


def plots_of(rows: Sequence[Row]) -> list[Plot]:
    """With quality where it was measured, else with the size of the file; two points at least."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        speed = row["decode_tok_s"] if row["kind"] == "language" else row["latency_s"]
        if speed and not row["emulated"]:
            groups.setdefault((row["model"], row["device"]), []).append(row)
    found = []
    for (model, device), members in groups.items():
        vision = members[0]["kind"] == "vision"
        judged = [row for row in members if row["ppl_device"] is not None]
        y_name = "perplexity" if judged else "file, MB"
        kept = judged or [row for row in members if row["file_size_bytes"]]
        points = []
        for row in kept:
            x = 1 / row["latency_s"] if vision else row["decode_tok_s"]
            y = row["ppl_device"] if judged else row["file_size_bytes"] / 1e6
            points.append(Point(_label(row, members), x, y))
        if len(points) > 1:
            x_name = "calls a second" if vision else "decode, tok/s"
            found.append(Plot(f"{model} on {device}", x_name, y_name, tuple(points)))
    return found


def _label(row: Row, members: Sequence[Row]) -> str:
    keys = [k for k in ("mode", "prompt", "threads_asked") if len({m[k] for m in members}) > 1]
    return " ".join(str(part) for part in (backend_of(row), row["recipe"], *(row[k] for k in keys)))


def pareto(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both, from the slowest to the fastest.

    >>> found = pareto([Point("a", 1, 5), Point("b", 2, 6), Point("c", 2, 4), Point("d", 3, 9)])
    >>> [point.label for point in found]
    ['c', 'd']
    """
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (-p.x, p.y)):
        if not best or point.y < best[-1].y:
            best.append(point)
    return best[::-1]


def draw(plot: Plot) -> str:
    """Numbers stand for the cells, which are listed below the plot."""
    xs, ys = [p.x for p in plot.points], [p.y for p in plot.points]
    ticks = nice_ticks(min(xs), max(xs))
    widest = _LETTER * max(len(f"{tick:,g}") for tick in ticks)
    frame = Frame(340, 226, 48, 10 + int(widest / 2), 18, 34, nice_ticks(min(ys), max(ys)))
    left, right, y = ticks[0], ticks[-1], frame.y

    def x(value: float) -> float:
        return frame.x((value - left) / ((right - left) or 1))

    parts = frame.begin(plot.y_name)
    apart = (frame.x(1) - frame.x(0)) / max(1, len(ticks) - 1)
    for tick in ticks[:: math.ceil((widest + _LETTER) / apart)]:  # those that do not touch
        place = f'x="{x(tick):.1f}" y="{frame.height - 19}"'
        parts.append(f'<text {place} text-anchor="middle">{tick:,g}</text>')
    parts.append(
        f'<text x="{frame.width - frame.right}" y="{frame.height - 5}" text-anchor="end">'
        f"{escape(plot.x_name)} →</text>"
    )
    front = pareto(plot.points)
    path = " ".join(f"{x(p.x):.1f},{y(p.y):.1f}" for p in front)
    parts.append(f'<polyline class="line p0 front" points="{path}"/>')
    for number, point in enumerate(plot.points, 1):
        css = "p0" if point in front else "p5"
        parts.append(
            f'<circle class="{css}" cx="{x(point.x):.1f}" cy="{y(point.y):.1f}" r="3.2">'
            f"<title>{escape(point.label)}: {point.x:,.4g}, {point.y:,.4g}</title></circle>"
            f'<text x="{x(point.x) + 5:.1f}" y="{y(point.y) - 4:.1f}">{number}</text>'
        )
    listed = "".join(f"<li>{escape(point.label)}</li>" for point in plot.points)
    below = f'<ol class="points">{listed}</ol>'
    return f"<div><h3>{escape(plot.title)}</h3>{''.join(parts)}</svg>{below}</div>"
