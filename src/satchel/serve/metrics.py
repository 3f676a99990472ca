"""What a server has done, in the text form that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_HELP = {
    "satchel_requests_total": "Requests by endpoint and status",
    "satchel_answers_total": "Answers by how they ended",
    "satchel_prompt_tokens_total": "Tokens of prompts",
    "satchel_cached_tokens_total": "Tokens of prompts that a cache had already",
    "satchel_generated_tokens_total": "Tokens of answers",
    "satchel_running": "Answers that are being made",
    "satchel_waiting": "Answers that wait for their turn",
    "satchel_cache_pages": "Pages of the KV caches in use, of 64 tokens each",
    "satchel_cache_pages_limit": "Pages that the KV caches may have",
    "satchel_sequences": "Conversations that the KV caches hold, those kept for later too",
    "satchel_first_token_seconds": "From the request to the first token",
    "satchel_token_gap_seconds": "Between two tokens of an answer",
    "satchel_answer_seconds": "From the request to the last token",
}


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(_SECONDS, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> list[str]:
        comma = "," if labels else ""
        lines, total = [], 0
        for edge, count in zip((*map(str, _SECONDS), "+Inf"), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{labels}{comma}le="{edge}"}} {total}')
        braces = f"{{{labels}}}" if labels else ""
        return [*lines, f"{name}_sum{braces} {self.sum:.6f}", f"{name}_count{braces} {total}"]


class Metrics:
    """Counters, gauges and histograms by name and labels; any thread may add to them.

    >>> metrics = Metrics()
    >>> metrics.count("satchel_prompt_tokens_total", 12, model="tiny")
    >>> print(metrics.text().splitlines()[-1])
    satchel_prompt_tokens_total{model="tiny"} 12
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[tuple[str, str], float] = defaultdict(float)
        self._histograms: dict[tuple[str, str], _Histogram] = defaultdict(_Histogram)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        with self._lock:
            self._counters[name, _labels(labels)] += amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        with self._lock:
            self._histograms[name, _labels(labels)].observe(seconds)

    def text(self, gauges: Mapping[tuple[str, str], float] | None = None) -> str:
        """All of them; ``gauges`` are by name and model."""
        with self._lock:
            values = dict(self._counters)
            values |= {(name, _labels({"model": m})): v for (name, m), v in (gauges or {}).items()}
            found: dict[str, list[str]] = defaultdict(list)
            for (name, labels), value in values.items():
                found[name].append(
                    f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}"
                )
            for (name, labels), histogram in self._histograms.items():
                found[name] += histogram.lines(name, labels)
        lines = []
        for name in sorted(found):
            kind = "histogram" if name.endswith("_seconds") else "gauge"
            kind = "counter" if name.endswith("_total") else kind
            lines += [f"# HELP {name} {_HELP.get(name, name)}", f"# TYPE {name} {kind}"]
            lines += sorted(found[name]) if kind != "histogram" else found[name]
        return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(labels.items()))
