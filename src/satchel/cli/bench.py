"""satchel bench: how fast a program runs here."""

from __future__ import annotations

import argparse

from satchel.cli.arguments import add_program_options, positive, threads
from satchel.cli.output import megabytes, print_json, say

HELP = "measure prefill and decode speed, time to first token and memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="a program, or a model to make one of")
    parser.add_argument(
        "--prompt-tokens", type=positive, default=256, metavar="N", help="prompt length"
    )
    parser.add_argument(
        "--new-tokens", type=positive, default=64, metavar="N", help="answer length"
    )
    parser.add_argument("--warmup", type=int, default=1, metavar="N", help="runs that do not count")
    parser.add_argument("--runs", type=positive, default=3, metavar="N", help="runs that count")
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> None:
    from satchel.bench.llm import BenchOptions, measure
    from satchel.cli.programs import find_program, open_program

    program = open_program(str(find_program(arguments.model)), arguments)
    options = BenchOptions(
        arguments.prompt_tokens,
        arguments.new_tokens,
        max(0, arguments.warmup),
        arguments.runs,
        threads(arguments),
    )
    result = measure(program, options, say)
    if arguments.json:
        print_json(result)
        return
    low, high = result["prefill_tok_s_spread"]
    print(f"prefill              {result['prefill_tok_s']:9.1f} tok/s  ({low:.1f} to {high:.1f})")
    low, high = result["decode_tok_s_spread"]
    print(f"decode               {result['decode_tok_s']:9.1f} tok/s  ({low:.1f} to {high:.1f})")
    print(
        f"time to first token  {result['ttft_s']:9.3f} s      {result['mode']}, "
        f"{result['prompt_tokens']} prompt tokens"
    )
    if result["mode"] == "hybrid":
        ratio = result["ttft_kv_s"] / result["ttft_s"]
        print(
            f"                     {result['ttft_kv_s']:9.3f} s      kv, {ratio:.1f} times as long"
        )
    print(f"read per token       {megabytes(result['bytes_per_token']):>12}")
    print(
        f"memory bandwidth     {result['bandwidth_share']:9.0%}        "
        f"of {result['read_bandwidth_bytes_s'] / 1e9:.1f} GB/s, measured in this run"
    )
    print(
        f"peak memory          {megabytes(result['peak_rss_bytes']):>12}  "
        f"(file {megabytes(result['file_size_bytes'])})"
    )
    print(f"with                 {result['threads']} threads, {result['kernels']} kernels")
