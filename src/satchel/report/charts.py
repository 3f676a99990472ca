"""Small plots as inline SVG. Text lies outside the bars, in HTML, so that a phone can show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Frame:
    """Where a chart's values lie: its size, the margins around them, and the ticks upwards."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    ticks: Sequence[float]

    def x(self, share: float) -> float:
        """Where something lies that has ``share`` of the width before it."""
        return self.left + (self.width - self.left - self.right) * share

    def y(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        space = self.height - self.top - self.bottom
        return self.top + space * (high - value) / ((high - low) or 1)

    def begin(self, unit: str) -> list[str]:
        """The opening of the chart, with a line for each tick and what the numbers are."""
        parts = [f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img">']
        for tick in self.ticks:
            y = self.y(tick)
            parts.append(
                f'<line class="grid" x1="{self.left}" x2="{self.width - self.right}" '
                f'y1="{y:.1f}" y2="{y:.1f}"/><text x="{self.left - 5}" y="{y + 3.5:.1f}" '
                f'text-anchor="end">{tick:g}</text>'
            )
        parts.append(f'<text x="2" y="{self.top - 7}">{escape(unit)}</text>')
        return parts


def bar(share: float, css: str, label: str = "") -> str:
    """One bar, ``share`` of the width there is."""
    width = 100 * min(max(share, 0.0), 1.0)
    title = f"<title>{escape(label)}</title>" if label else ""
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{escape(css)}" width="{width:.2f}" height="10">{title}</rect></svg>'
    )


def stacked_bar(parts: Sequence[tuple[str, float, str]], whole: float) -> str:
    """Parts side by side: label, amount and CSS class of each; ``whole`` is the full width."""
    at, rects = 0.0, []
    for label, amount, css in parts:
        width = 100 * amount / whole if whole else 0.0
        rects.append(
            f'<rect class="{escape(css)}" x="{at:.3f}" width="{max(width - 0.15, 0.05):.3f}" '
            f'height="10"><title>{escape(label)}</title></rect>'
        )
        at += width
    return (
        '<svg class="bar tall" viewBox="0 0 100 10" preserveAspectRatio="none" role="img">'
        + "".join(rects)
        + "</svg>"
    )


def line_chart(
    lines: Mapping[str, Sequence[float | None]], unit: str, low: float, high: float
) -> str:
    """Values by layer, a line for each CSS class; None leaves a gap. All charts of a page can
    share ``low`` and ``high``, so that they can be compared."""
    frame = Frame(320, 176, 34, 8, 18, 24, nice_ticks(low, high))
    layers = max((len(values) for values in lines.values()), default=0)

    def x(layer: int) -> float:
        return frame.x(layer / max(layers - 1, 1))

    parts = frame.begin(unit)
    for layer in sorted({0, (layers - 1) // 2, max(layers - 1, 0)}):
        parts.append(
            f'<text x="{x(layer):.1f}" y="{frame.height - 8}" text-anchor="middle">{layer}</text>'
        )
    for css, values in lines.items():
        known = [(i, v) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
        points = [(x(i), frame.y(v)) for i, v in known]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline class="line {escape(css)}" points="{path}"/>')
        parts += [
            f'<circle class="{escape(css)}" cx="{px:.1f}" cy="{py:.1f}" r="1.8"/>'
            for px, py in points
        ]
    return "".join(parts) + "</svg>"


def nice_ticks(low: float, high: float) -> list[float]:
    """Round numbers around a range, three to six of them.

    >>> nice_ticks(19.2, 23.9)
    [19.0, 20.0, 21.0, 22.0, 23.0, 24.0]
    """
    span = max(high - low, 1e-9)
    step = 10.0 ** math.floor(math.log10(span))
    for factor in (0.2, 0.5, 1.0, 2.0, 5.0):
        if span / (step * factor) <= 5:
            step *= factor
            break
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) for i in range(first, last + 1)]
