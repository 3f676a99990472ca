"""Small plots as inline SVG. Text lies outside the bars, in HTML, so that a phone can show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 320, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 8, 10, 24


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
    steps = nice_ticks(low, high)
    low, high = min(low, steps[0]), max(high, steps[-1])
    layers = max((len(values) for values in lines.values()), default=0)

    def x(layer: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * layer / max(layers - 1, 1)

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - value) / ((high - low) or 1)

    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">']
    for step in steps:
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(step):.1f}" '
            f'y2="{y(step):.1f}"/><text x="{_LEFT - 5}" y="{y(step) + 3.5:.1f}" '
            f'text-anchor="end">{step:g}</text>'
        )
    for layer in sorted({0, (layers - 1) // 2, max(layers - 1, 0)}):
        parts.append(
            f'<text x="{x(layer):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{layer}</text>'
        )
    parts.append(f'<text x="{_LEFT + 3}" y="{_TOP + 1}">{escape(unit)}</text>')
    for css, values in lines.items():
        points = [(x(i), y(v)) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
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
