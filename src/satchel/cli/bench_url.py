"""satchel bench --url: a server under load, as a table, JSON or a plot."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from satchel.cli.arguments import count, positive
from satchel.cli.output import emit, print_json, say, table
from satchel.errors import UsageError


def counts(text: str) -> list[int]:
    """
    >>> counts("1,4,16")
    [1, 4, 16]
    """
    return [positive(part) for part in text.split(",")]


def add_url_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a server under load")
    group.add_argument(
        "--url", help="measure the server at this address; FILE is the name of its model, if given"
    )
    group.add_argument(
        "--clients",
        type=counts,
        default=[4],
        metavar="N[,N…]",
        help="how many ask at the same time; several numbers are measured in turn",
    )
    group.add_argument(
        "--requests", type=positive, default=4, metavar="N", help="requests of each client"
    )
    group.add_argument(
        "--prompt-words",
        type=count,
        default=0,
        metavar="N",
        help="words before each question, others each time",
    )
    group.add_argument(
        "--shared-words",
        type=count,
        default=0,
        metavar="N",
        help="words that all prompts begin with",
    )
    group.add_argument("--plot", metavar="FILE.svg", help="draw what is measured")
    group.add_argument("--api-key", metavar="KEY", help="the server's; also from SATCHEL_API_KEY")


def bench_url(arguments: argparse.Namespace) -> None:
    from satchel.benchmark.load import LoadOptions, measure_load
    from satchel.benchmark.load_plot import plot
    from satchel.files import atomic_write, check_output
    from satchel.remote import Remote

    if arguments.plot and not arguments.plot.endswith(".svg"):
        raise UsageError(f"{arguments.plot} is not an .svg file", "Plots are SVG pictures.")
    if arguments.plot:
        check_output(Path(arguments.plot), overwrite=True)
    remote = Remote(arguments.url, arguments.api_key or os.environ.get("SATCHEL_API_KEY"))
    runs = []
    for clients in arguments.clients:
        say(f"{clients} clients, {arguments.requests} requests each …")
        options = LoadOptions(
            clients,
            arguments.requests,
            arguments.new_tokens,
            arguments.prompt_words,
            arguments.shared_words,
            arguments.model,
        )
        runs.append(measure_load(remote, options))
    if arguments.plot:
        with atomic_write(Path(arguments.plot)) as file:
            file.write(plot(runs).encode())
    if arguments.json:
        print_json({"url": remote.url, "runs": runs})
        return
    header = ["clients", "tok/s", "first p50", "p99", "gap p50", "p99", "cached", "errors"]
    emit(table([_row(run) for run in runs], header))
    emit("first: seconds to the first token; gap: seconds between two; cached: of prompt tokens")


def _row(run: dict[str, Any]) -> list[str]:
    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    share = run["cached_tokens"] / run["prompt_tokens"] if run["prompt_tokens"] else 0.0
    return [
        str(run["clients"]),
        f"{run['tok_s']:.1f}",
        shown(run["ttft_s"]["p50"]),
        shown(run["ttft_s"]["p99"]),
        shown(run["gap_s"]["p50"]),
        shown(run["gap_s"]["p99"]),
        f"{share:.0%}",
        str(run["errors"]),
    ]
