"""What has changed between two folders of results, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from satchel.sweeps.report.tables import (
    Entry,
    Table,
    backend_of,
    milliseconds,
    plain_megabytes,
    tokens,
)
from satchel.sweeps.results import Row
from satchel.units import counted

CONFIDENCE = 0.95
_SIDES = ("before", "now")
_MEASURED_BY = {
    "on other machines, which may be all that a change means": ("machine", "cpu"),
    "by other versions": ("satchel", "peer_version"),
}
_READING = (
    "The interval is Welch's, of the logarithms: over the processes of a cell where there are "
    "several, else over the runs of its one process, which scatter less than processes do. "
    "Sizes and perplexities that are the same in both are left out."
)
_PLACE = ("model", "peer", "target", "recipe", "mode", "prompt", "device", "threads_asked")
# What a figure is called, how it is written, and whether more of it is better.
_FIGURES: dict[str, tuple[str, Callable[[float], str], bool]] = {
    "prefill_tok_s": ("prefill, tok/s", tokens, True),
    "decode_tok_s": ("decode, tok/s", tokens, True),
    "ttft_s": ("first token, ms", milliseconds, False),
    "latency_s": ("latency, ms", milliseconds, False),
    "peak_rss_bytes": ("memory, MB", plain_megabytes, False),
    "file_size_bytes": ("file, MB", plain_megabytes, False),
    "ppl_device": ("perplexity", lambda value: f"{value:,.3f}", False),
}


def t_quantile(probability: float, freedom: float) -> float:
    """Of Student's distribution, by bisection of its distribution function.

    >>> round(t_quantile(0.975, 4), 3), round(t_quantile(0.975, 1e6), 3)
    (2.776, 1.96)
    """
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        tail = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + middle * middle)) / 2
        if 1 - tail < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised, by its continued fraction."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where it would converge slowly
        return 1 - _incomplete_beta(b, a, 1 - x)
    whole = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(whole + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d, value = 1.0, 0.0, 1.0
    for i in range(300):
        m = i // 2
        if i == 0:
            step = 1.0
        elif i % 2 == 0:
            step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + step * d or tiny)
        c = 1 + step / c or tiny
        value *= c * d
        if abs(1 - c * d) < 1e-12:
            break
    return front * (value - 1)


def change(before: Sequence[float], now: Sequence[float]) -> tuple[float, float, float] | None:
    """The ratio of the means of the logarithms, less 1, with the ends of Welch's interval; None if
    one side has a single figure, which tells nothing of how much they scatter."""
    if len(before) < 2 or len(now) < 2 or min(*before, *now) <= 0:
        return None
    logs = [[math.log(value) for value in side] for side in (before, now)]
    means = [statistics.fmean(side) for side in logs]
    errors = [statistics.variance(side) / len(side) for side in logs]
    difference, error = means[1] - means[0], math.sqrt(sum(errors))
    if error == 0:
        return (math.expm1(difference),) * 3
    freedom = sum(errors) ** 2 / sum(
        e**2 / (len(side) - 1) for e, side in zip(errors, logs, strict=True)
    )
    reach = t_quantile((1 + CONFIDENCE) / 2, freedom) * error
    return (
        math.expm1(difference),
        math.expm1(difference - reach),
        math.expm1(difference + reach),
    )


def differences(before: Sequence[Row], now: Sequence[Row]) -> Table:
    """One line for each figure that both have. Cells are the same if their places are."""
    known = {tuple(row[key] for key in _PLACE): row for row in before}
    head = ["cell", "figure", "before", "now", "change", f"{CONFIDENCE:.0%} interval", ""]
    table = Table("differences", "What has changed", "", head, 2, [])
    here = {tuple(row[key] for key in _PLACE) for row in now}
    for row in now:
        old = known.get(tuple(row[key] for key in _PLACE))
        if old is None:
            continue
        parts = (row["model"], backend_of(row), row["recipe"], row["mode"], row["prompt"])
        device = row["device"] if row["device"] != "local" else ""
        threads = counted(row["threads_asked"], "thread") if row["threads_asked"] else ""
        label = " ".join(part for part in (*parts, device, threads) if part)
        sides = (old["status"], row["status"])
        if sides[0] != sides[1] and "ok" in sides and "pending" not in sides:
            verdict = "better" if sides[1] == "ok" else "worse"
            texts = [Entry(text) for text in (label, "status", *sides, "", "")]
            table.rows.append([*texts, Entry(verdict, best=True)])
        for field, (name, write, larger) in _FIGURES.items():
            if not row[field] or not old[field]:
                continue  # nothing, or the speed of an answer of one token
            pair = old.get(f"{field}_samples") or [], row.get(f"{field}_samples") or []
            shown = (write(old[field]), write(row[field]))
            ratio = row[field] / old[field] - 1
            if shown[0] == shown[1] and not all(pair):
                continue  # a file that is the same, for example
            table.rows.append([Entry(label), Entry(name), *_line(shown, ratio, pair, larger)])
    table.about = _about(table, before, now, [len(known.keys() - here), len(here - known.keys())])
    return table


def _about(table: Table, before: Sequence[Row], now: Sequence[Row], alone: Sequence[int]) -> str:
    """How to read it, and what may deceive."""
    verdicts = Counter(row[-1].text for row in table.rows)
    told = f"{verdicts['better']} better, {verdicts['worse']} worse"
    only = [f"{counted(n, 'cell')} only {when}" for n, when in zip(alone, _SIDES, strict=True) if n]
    parts = [f"{', '.join([told, *only])}."]
    for name, keys in _MEASURED_BY.items():
        sides = [{tuple(row[key] for key in keys) for row in rows} for rows in (before, now)]
        sides = [{side for side in each if any(side)} for each in sides]
        if all(sides) and sides[0] != sides[1]:
            parts.append(f"They were measured {name}.")
    return " ".join((*parts, _READING))


def _line(
    shown: tuple[str, str],
    ratio: float,
    samples: tuple[Sequence[float], Sequence[float]],
    larger: bool,
) -> list[Entry]:
    found = change(*samples)
    ratio = found[0] if found else ratio
    interval = verdict = ""
    if found:
        interval = f"{found[1]:+.1%} to {found[2]:+.1%}"
        if found[1] > 0 or found[2] < 0:
            verdict = "better" if (ratio > 0) == larger else "worse"
    texts = (*shown, f"{ratio:+.1%}", interval, verdict)
    return [Entry(text, best=verdict != "" and text == verdict) for text in texts]
