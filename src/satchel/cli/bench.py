"""satchel bench: how fast a program runs here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import (
    add_lookahead_sizes,
    add_program_options,
    count,
    lookahead_sizes,
    positive,
    threads,
)
from satchel.cli.bench_device import add_device_options, bench_device, print_device
from satchel.cli.bench_url import add_url_options, bench_url
from satchel.cli.output import emit, print_json, say
from satchel.cli.repeat import add_cool_down
from satchel.errors import UsageError
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.benchmark.lookahead import LookaheadBench
    from satchel.runtime.program import Program

_EMULATED = "emulator: not a speed. It computes what the chip would, and not as fast."
HELP = "measure speed and memory: prefill and decode, one call of another model, or a server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="FILE", nargs="?", help="a program, or a model to make one of"
    )
    parser.add_argument(
        "--prompt-tokens", type=positive, default=256, metavar="N", help="prompt length"
    )
    parser.add_argument(
        "--new-tokens", type=positive, default=64, metavar="N", help="answer length"
    )
    parser.add_argument(
        "--prompt-file",
        metavar="FILE",
        help="what is read instead of random tokens, through the chat template: a file, - for "
        "stdin, paper:executorch for the prompt of that paper",
    )
    parser.add_argument(
        "--warmup", "--warm-up", type=count, default=1, metavar="N", help="runs that do not count"
    )
    parser.add_argument(
        "--runs",
        "--iterations",
        "--iteration",
        "--num-executions",
        dest="runs",
        type=positive,
        default=3,
        metavar="N",
        help="runs that count",
    )
    add_cool_down(parser)
    parser.add_argument(
        "--profile", action="store_true", help="also time every op, in runs of their own"
    )
    group = parser.add_argument_group("lookahead")
    group.add_argument(
        "--lookahead",
        choices=("auto", "on"),
        help="also measure guessing ahead, in turn with plain decoding of the same text",
    )
    add_lookahead_sizes(group)
    add_url_options(parser)
    add_device_options(parser.add_argument_group("on a phone or board"))
    add_program_options(parser)


def _lookahead(arguments: argparse.Namespace) -> LookaheadBench | None:
    from satchel.benchmark.lookahead import LookaheadBench

    sizes = lookahead_sizes(arguments)
    if arguments.lookahead is None:
        if sizes:
            raise UsageError(
                "--ngram, --window and --gcap are for lookahead",
                "Add --lookahead auto or --lookahead on.",
            )
        return None
    return LookaheadBench(arguments.lookahead, sizes)


def _prompt(arguments: argparse.Namespace, program: Program) -> list[int] | None:
    from satchel.cli.programs import read_prompt

    arguments.prompt = None
    text = read_prompt(arguments)
    system = getattr(arguments, "system", None)
    return None if text is None else prompt_tokens(program, text, system)


def prompt_tokens(program: Program, text: str, system: str | None = None) -> list[int]:
    """A prompt as ``satchel run`` reads it: through the chat template, if there is one."""
    from satchel.llm.llm import LLM

    llm = LLM(program, threads=1)
    if not llm.has_chat_template:
        return llm.tokenizer.encode(f"{system} {text}" if system else text)
    before = [{"role": "system", "content": system}] if system else []
    return llm.chat_tokens([*before, {"role": "user", "content": text}])


def _bench_module(program: Program, arguments: argparse.Namespace) -> None:
    from satchel.benchmark.module import ModuleBench, measure_module

    options = ModuleBench(
        max(1, arguments.warmup),
        arguments.runs,
        threads(arguments),
        profile=arguments.profile,
        cool_down=arguments.cool_down,
    )
    _print_module(measure_module(program, options), arguments)


def _print_module(result: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(result)
        return
    for name, key in (("median", "median_s"), ("mean", "mean_s"), ("95th percentile", "p95_s")):
        emit(f"{name:<16} {result[key] * 1000:9.2f} ms")
    emit(f"{'calls':<16} {result['calls_s']:9.1f} a second, of {result['method']}")
    emit(
        f"{'peak memory':<16} {megabytes(result['peak_rss_bytes']):>12}  (arena "
        f"{megabytes(result['arena_bytes'])}, file {megabytes(result['file_size_bytes'])})"
    )
    emit(f"{'with':<16} {result['threads']} threads, {result['kernels']} kernels")
    if result["emulated"]:
        emit(_EMULATED)
    _print_profile(result)
    print_device(result)


def _print_profile(result: dict[str, Any]) -> None:
    from satchel.benchmark.profile import profile_lines

    for name, profile in (result["profile"] or {}).items():
        emit()
        emit("\n".join(profile_lines(name, profile)))


def execute(arguments: argparse.Namespace) -> None:
    from satchel.benchmark.llm import BenchOptions, measure
    from satchel.cli.programs import find_program, open_program

    if arguments.url:
        bench_url(arguments)
        return
    if arguments.plot:
        raise UsageError("--plot draws a server's load", "Give its address with --url.")
    if arguments.model is None:
        raise UsageError("there is nothing to measure", "Give a FILE, or a server with --url.")
    path = find_program(arguments.model)
    if arguments.device:
        result = bench_device(arguments, path)
        (_print if "prefill_tok_s" in result else _print_module)(result, arguments)
        return
    program = open_program(str(path), arguments)
    if not program.is_language_model:
        _bench_module(program, arguments)
        return
    options = BenchOptions(
        arguments.prompt_tokens,
        arguments.new_tokens,
        max(0, arguments.warmup),
        arguments.runs,
        threads(arguments),
        _lookahead(arguments),
        arguments.profile,
        _prompt(arguments, program),
        arguments.cool_down,
    )
    _print(measure(program, options, say), arguments)


def _print(result: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(result)
        return
    low, high = result["prefill_tok_s_spread"]
    emit(f"prefill              {result['prefill_tok_s']:9.1f} tok/s  ({low:.1f} to {high:.1f})")
    low, high = result["decode_tok_s_spread"]
    emit(f"decode               {result['decode_tok_s']:9.1f} tok/s  ({low:.1f} to {high:.1f})")
    emit(
        f"time to first token  {result['ttft_s']:9.3f} s      {result['mode']}, "
        f"{result['prompt_tokens']} prompt tokens"
    )
    if result["mode"] == "hybrid":
        ratio = result["ttft_kv_s"] / result["ttft_s"]
        emit(
            f"                     {result['ttft_kv_s']:9.3f} s      kv, {ratio:.1f} times as long"
        )
    emit(f"load to first token  {result['load_s']:9.3f} s      of a prompt of one token")
    guessing = result["lookahead"]
    if guessing:
        low, high = guessing["speedup_spread"]
        emit(
            f"lookahead            {guessing['tok_s']:9.1f} tok/s  {guessing['speedup']:.2f} times "
            f"plain decoding ({low:.2f} to {high:.2f}), "
            f"{guessing['tokens_per_step']:.2f} tokens a step"
        )
    emit(f"read per token       {megabytes(result['bytes_per_token']):>12}")
    emit(
        f"memory bandwidth     {result['bandwidth_share']:9.0%}        "
        f"of {result['read_bandwidth_bytes_s'] / 1e9:.1f} GB/s, measured in this run"
    )
    if result.get("arithmetic_share") is not None:
        emit(
            f"arithmetic           {result['arithmetic_share']:9.0%}        of "
            f"{result['multiply_adds_s'] / 1e12:.1f} T multiply-adds/s, in prefill"
        )
    emit(
        f"peak memory          {megabytes(result['peak_rss_bytes']):>12}  "
        f"(file {megabytes(result['file_size_bytes'])})"
    )
    if result["device_memory_bytes"]:
        emit(f"memory of the device {megabytes(result['device_memory_bytes']):>12}")
    emit(f"with                 {result['threads']} threads, {result['kernels']} kernels")
    if result["emulated"]:
        emit(_EMULATED)
    _print_profile(result)
    print_device(result)
