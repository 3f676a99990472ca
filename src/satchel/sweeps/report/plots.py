"""Speed against quality, a plot for each model, device and prompt, with the best trades' line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from satchel.report.charts import Frame, nice_ticks
from satchel.sweeps.report.tables import backend_of
from satchel.sweeps.results import Row
from satchel.units import counted

_LETTER, _HIGH = 6.3, 9.0  # the size of a digit in a chart
_NEAR = 5.0  # a point and some air around it
_WORK = ("model", "device", "prompt")


@dataclass(frozen=True)
class Point:
    """A cell in a plot: further right is faster, further down is better."""

    label: str
    x: float
    y: float


@dataclass(frozen=True)
class Plot:
    """All cells of a model that do the same work on a device."""

    title: str
    x_name: str
    y_name: str
    points: tuple[Point, ...]


def plots_of(rows: Sequence[Row]) -> list[Plot]:
    """With quality where it was measured, else with the size of the file; two points at least."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        speed = row["decode_tok_s"] if row["kind"] == "language" else row["latency_s"]
        if speed and not row["emulated"]:
            groups.setdefault(tuple(row[key] for key in _WORK), []).append(row)
    several = [len(set(names)) > 1 for names in zip(*groups, strict=True)]
    found = []
    for work, members in groups.items():
        model, *place = work
        told = [name for name, differs in zip(place, several[1:], strict=True) if differs]
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
            found.append(Plot(", ".join([model, *told]), x_name, y_name, tuple(points)))
    return found


def _label(row: Row, members: Sequence[Row]) -> str:
    """What tells a cell from the others of its plot."""
    ours = [each for each in members if not each["peer"]]
    parts = [backend_of(row), row["recipe"]]
    parts += [row["mode"]] if len({each["mode"] for each in ours}) > 1 else []
    if len({each["threads_asked"] for each in ours}) > 1:
        parts.append(counted(row["threads_asked"], "thread") if row["threads_asked"] else "")
    return " ".join(part for part in parts if part)


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


def _numbers(places: Sequence[tuple[float, float]], frame: Frame) -> list[tuple[float, float]]:
    """Where the numbers of points stand: beside each, where they cover the least of the others."""
    taken = [(x - _NEAR, y - _NEAR, x + _NEAR, y + _NEAR) for x, y in places]
    found = []
    for number, (x, y) in enumerate(places, 1):
        wide = _LETTER * len(str(number))
        sides = [x + _NEAR, x - _NEAR - wide]
        tries = [(side, y + down) for down in (-3, _HIGH + 2, 0.4 * _HIGH) for side in sides]
        tries += [(x - wide / 2, y - 6), (x - wide / 2, y + _HIGH + 6)]
        tries += [(side, y + down) for down in (-13, _HIGH + 12) for side in sides]

        def covers(at: tuple[float, float], wide: float = wide) -> float:
            left, top, right, low = at[0], at[1] - _HIGH, at[0] + wide, at[1]
            shared = sum(
                max(0.0, min(right, b[2]) - max(left, b[0]))
                * max(0.0, min(low, b[3]) - max(top, b[1]))
                for b in taken
            )
            outside = left < frame.left or right > frame.width or top < frame.top - _HIGH
            return shared + 1e3 * (outside or low > frame.height - frame.bottom)

        chosen = min(tries, key=covers)  # the first of those that are as good
        taken.append((chosen[0], chosen[1] - _HIGH, chosen[0] + wide, chosen[1]))
        found.append(chosen)
    return found


def draw(plot: Plot) -> str:
    """Numbers stand for the cells, which are listed below the plot."""
    xs, ys = [p.x for p in plot.points], [p.y for p in plot.points]
    ticks = nice_ticks(min(xs), max(xs))
    widest = _LETTER * max(len(f"{tick:,g}") for tick in ticks)
    frame = Frame(340, 226, 48, 10 + int(widest / 2), 24, 34, nice_ticks(min(ys), max(ys)))
    left, right, y = ticks[0], ticks[-1], frame.y

    def x(value: float) -> float:
        return frame.x((value - left) / ((right - left) or 1))

    parts = frame.begin(plot.y_name)
    apart = (frame.x(1) - frame.x(0)) / max(1, len(ticks) - 1)
    for tick in ticks[:: math.ceil((widest + _LETTER) / apart)]:  # those that do not touch
        at = f'x="{x(tick):.1f}" y="{frame.height - 19}"'
        parts.append(f'<text {at} text-anchor="middle">{tick:,g}</text>')
    parts.append(
        f'<text x="{frame.width - frame.right}" y="{frame.height - 5}" text-anchor="end">'
        f"{escape(plot.x_name)} →</text>"
    )
    front = pareto(plot.points)
    path = " ".join(f"{x(p.x):.1f},{y(p.y):.1f}" for p in front)
    parts.append(f'<polyline class="line p0 front" points="{path}"/>')
    places = [(x(point.x), y(point.y)) for point in plot.points]
    numbers = _numbers(places, frame)
    for point, place, (at_x, at_y), number in zip(
        plot.points, places, numbers, range(1, len(places) + 1), strict=True
    ):
        css = "p0" if point in front else "p5"
        parts.append(
            f'<circle class="{css}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="3.2">'
            f"<title>{escape(point.label)}: {point.x:,.4g}, {point.y:,.4g}</title></circle>"
            f'<text x="{at_x:.1f}" y="{at_y:.1f}">{number}</text>'
        )
    listed = "".join(
        f"<li{' class=best' if point in front else ''}>{escape(point.label)}</li>"
        for point in plot.points
    )
    below = f'<ol class="points">{listed}</ol>'
    return f"<div><h3>{escape(plot.title)}</h3>{''.join(parts)}</svg>{below}</div>"
