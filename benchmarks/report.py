"""The tables of the side-by-side run, from what its processes printed.

python benchmarks/report.py WORK/results.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Result:
    """One contender with one model: its runs, or what went wrong."""

    name: str
    label: str
    isa: str
    is_satchel: bool
    prepared: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def median(self, name: str) -> float:
        return statistics.median(float(run[name]) for run in self.runs)

    def median_share(self) -> float:
        """Of the memory's bandwidth before and after each process, what its decode read."""
        return statistics.median(
            run["decode_tok_s"] * run["bytes_per_token"] / run["read_bandwidth_bytes_s"]
            for run in self.runs
        )

    def decode_at_equal_memory(self) -> float:
        """Tokens for each byte that the memory could have read."""
        return self.median_share() / self.median("bytes_per_token")

    def spread(self, name: str) -> str:
        """The lowest and the highest of all runs in all rounds."""
        values = [value for run in self.runs for value in run[f"{name}_spread"]]
        return f"{figure(min(values))}–{figure(max(values))}"

    def long_prefill(self) -> tuple[float, float] | None:
        """Tokens per second with the long prompt, and how much longer a token takes in it."""
        both = [list(run["long"]["prefill_s"].items()) for run in self.runs if "long" in run]
        if not both:
            return None
        (short, _), (long, _) = both[0]
        short_s = statistics.median(pair[0][1] for pair in both) / int(short)
        long_s = statistics.median(pair[1][1] for pair in both) / int(long)
        return 1 / long_s, long_s / short_s - 1


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


HEADER = (
    "runtime",
    "prefill tok/s",
    "spread",
    "Satchel is",
    "of int8 limit",
    "decode tok/s",
    "spread",
    "Satchel is",
    "MB read/token",
    "memory GB/s",
    "of read limit",
    "prefill of 2,048",
    "peak MB",
)


def table(header: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(result: Result, best: Result | None, entry: dict[str, Any]) -> list[str]:
    if not result.runs:
        empty = [""] * (len(HEADER) - 2)
        return [result.label, f"— {result.problem or 'not measured'}", *empty]
    limits = entry["limits"]
    rate = limits["int8_macs_s"].get(result.isa or limits["selected"], 0.0)
    prefill, decode = result.median("prefill_tok_s"), result.median("decode_tok_s")
    read = result.median("bytes_per_token")

    def ratio(name: str) -> str:
        if best is None or result is best:
            return ""
        return f"{best.median(name) / result.median(name):.2f}×"

    long = result.long_prefill()
    return [
        result.label,
        figure(prefill),
        result.spread("prefill_tok_s"),
        ratio("prefill_tok_s"),
        f"{prefill * entry['macs_per_token'] / rate:.0%}" if rate else "",
        figure(decode),
        result.spread("decode_tok_s"),
        ratio("decode_tok_s"),
        figure(read / 1e6),
        figure(result.median("read_bandwidth_bytes_s") / 1e9),
        f"{result.median_share():.0%}",
        f"{figure(long[0])} ({long[1]:+.0%} per token)" if long else "",
        figure(max(run["peak_rss_bytes"] for run in result.runs) / 1e6),
    ]


def comparisons(results: list[Result]) -> list[str]:
    """Each Satchel against the best peer that uses the same instructions or more."""
    lines = []
    for mine in results:
        if not (mine.is_satchel and mine.runs):
            continue
        peers = [r for r in results if not r.is_satchel and r.runs]
        # Held to AVX2, it is compared with what was built for AVX2.
        peers = [r for r in peers if (r.isa == "avx2") == (mine.isa == "avx2")]
        for name, word in (("prefill_tok_s", "prefill"), ("decode_tok_s", "decode")):
            if peers:
                rival = max(peers, key=lambda r: r.median(name))
                times = mine.median(name) / rival.median(name)
                lines.append(f"- {mine.label}, {word}: {times:.2f}× {rival.label}, the best peer")
        if peers:
            rival = max(peers, key=Result.decode_at_equal_memory)
            times = mine.decode_at_equal_memory() / rival.decode_at_equal_memory()
            lines.append(
                f"- {mine.label}, decode for the bandwidth that each found: {times:.2f}× "
                f"{rival.label}, the best peer"
            )
    return lines


def preparation(results: list[Result]) -> str:
    rows = []
    for result in results:
        known = result.prepared
        if known and not result.name.startswith("satchel-") and result.name != "llamacpp-avx2":
            load = f"{result.median('load_s'):.2f}" if result.runs else ""
            peak = figure(known["peak_rss_bytes"] / 1e6)
            rows.append([result.label, f"{known['seconds']:.1f}", peak, load])
    return table(("preparing", "s", "peak MB", "loading s"), rows)


def busy(limits: dict[str, Any]) -> str:
    """A warning, if others used the machine before the rounds."""
    shares = [share for share in limits.get("busy_shares", []) if share is not None]
    if not shares or max(shares) < 0.1:
        return ""
    return (
        f" **The machine was busy with other work: up to {max(shares):.0%} of the CPU before a "
        "round. Do not use these figures.**"
    )


def one_model(entry: dict[str, Any]) -> str:
    results = [Result(**fields) for fields in entry["results"]]
    best = next((r for r in results if r.name == "satchel" and r.runs), None)
    limits = entry["limits"]
    rates = ", ".join(
        f"{rate / 1e9:,.0f} G with {table}" for table, rate in limits["int8_macs_s"].items()
    )
    return "\n\n".join(
        [
            f"## {entry['model']}",
            f"Limits measured in the same run: {limits['read_bandwidth_bytes_s'] / 1e9:.1f} GB/s "
            f"read (and around each process); int8 multiply-accumulates per second: {rates}. "
            f"A prompt token takes {entry['macs_per_token'] / 1e9:.2f} G of them.{busy(limits)}",
            table(HEADER, [row(result, best, entry) for result in results]),
            "\n".join(comparisons(results)),
            preparation(results),
        ]
    )


def markdown(document: dict[str, Any]) -> str:
    head = (
        f"{document['threads']} threads, {document['prompt_tokens']} prompt tokens, "
        f"{document['new_tokens']} new tokens; medians over {document['rounds']} rounds of "
        f"{document['runs']} runs each."
    )
    return "\n\n".join([head, *(one_model(entry) for entry in document["models"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    print(markdown(json.loads(parser.parse_args().results.read_text())))


if __name__ == "__main__":
    main()
