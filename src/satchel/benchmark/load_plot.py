"""What a server was like under load, drawn."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

_PANELS: tuple[tuple[str, Callable[[dict[str, Any]], float]], ...] = (
    ("tokens a second", lambda run: run["tok_s"]),
    ("seconds to the first token, 99%", lambda run: run["ttft_s"]["p99"] or 0.0),
    ("seconds between tokens, 99%", lambda run: run["gap_s"]["p99"] or 0.0),
)


def plot(runs: list[dict[str, Any]]) -> str:
    """Bars by number of clients, one panel for each measure."""
    width, height, parts = 260, 200, []
    for number, (title, value) in enumerate(_PANELS):
        left = number * width
        highest = max(map(value, runs)) or 1.0
        parts.append(f'<text x="{left + 10}" y="18">{escape(title)}</text>')
        step = (width - 20) / len(runs)
        for at, run in enumerate(runs):
            tall = (height - 75) * value(run) / highest
            x = left + 10 + at * step
            middle = x + step * 0.4
            parts.append(
                f'<rect x="{x:.1f}" y="{height - 30 - tall:.1f}" width="{step * 0.8:.1f}" '
                f'height="{tall:.1f}"/><text x="{middle:.1f}" y="{height - 36 - tall:.1f}" '
                f'text-anchor="middle">{value(run):.3g}</text><text x="{middle:.1f}" '
                f'y="{height - 12}" text-anchor="middle">{run["clients"]}</text>'
            )
    style = "text{font:12px sans-serif;fill:#444}rect{fill:#3b6ea8}svg{background:#fff}"
    size = f"0 0 {width * len(_PANELS)} {height}"
    label = f"{runs[0]['model']} at {runs[0]['url']}, by number of clients"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">'
        f"<title>{escape(label)}</title><style>{style}</style>{''.join(parts)}</svg>"
    )
