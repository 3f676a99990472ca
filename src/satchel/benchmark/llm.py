"""Speed of a language model program: prefill, decode, time to first token, memory."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from satchel.benchmark.lookahead import LookaheadBench, measure_lookahead
from satchel.benchmark.profile import profile_of, require_profile
from satchel.errors import ConfigError
from satchel.llm.sampling import SamplingOptions
from satchel.llm.session import Session
from satchel.machine import peak_rss
from satchel.program.names import KV_METHOD
from satchel.runtime.program import Program

Tell = Callable[[str], None]
_CHAIN = 32  # tokens of a call of chips that choose them
_GREEDY = SamplingOptions(temperature=0.0)


@dataclass(frozen=True)
class BenchOptions:
    prompt_tokens: int = 256
    new_tokens: int = 64
    warmup: int = 1
    runs: int = 3
    threads: int = 0
    lookahead: LookaheadBench | None = None
    profile: bool = False
    prompt: Sequence[int] | None = None  # None: ``prompt_tokens`` random ones
    cool_down: float = 0.0  # seconds of rest before every run but the first


@dataclass
class Run:
    ttft_s: float
    decode_s: float


def measure(program: Program, options: BenchOptions, tell: Tell = lambda _: None) -> dict[str, Any]:
    """The document of ``satchel bench --json``; medians over the runs.

    The prompt is random tokens from a fixed seed unless one is given, and end tokens are ignored,
    so that every run does the same work.
    """
    if options.profile:
        require_profile(program)
    started = time.perf_counter()
    program = program.reopened()
    session = Session(program, options.threads)
    session.feed([0])
    load_s = time.perf_counter() - started
    if options.prompt is not None:
        options = replace(options, prompt_tokens=len(options.prompt))
    _require_room(session, options.prompt_tokens, options.new_tokens)
    vocabulary = int(program.methods[0]["outputs"][0]["shape"][-1])
    prompt = np.random.default_rng(0).integers(0, vocabulary, options.prompt_tokens).tolist()
    if options.prompt is not None:
        prompt = list(options.prompt)
    threads = session.instance.threads
    for number in range(options.warmup):
        tell(f"warm-up {number + 1} of {options.warmup}")
        _run(session, prompt, options.new_tokens)
    runs = []
    for number in range(options.runs):
        if options.cool_down and (number or options.warmup):
            tell(f"cooling down for {options.cool_down:g} s")
            time.sleep(options.cool_down)
        tell(f"run {number + 1} of {options.runs}")
        runs.append(_run(session, prompt, options.new_tokens))
    memory = peak_rss()  # before the bandwidth's own buffer
    device_memory = session.instance.device_memory
    bandwidth, multiply_adds = session.instance.measure_limits()
    ttft = statistics.median(r.ttft_s for r in runs)
    decode = [(options.new_tokens - 1) / r.decode_s for r in runs if r.decode_s]
    prefill = [options.prompt_tokens / r.ttft_s for r in runs]
    decode_tok_s = statistics.median(decode) if decode else 0.0
    bytes_per_token = _bytes_per_token(program, options)
    document: dict[str, Any] = {
        "program": str(program.path),
        "checksum": program.checksum,
        "mode": session.mode,
        "prompt_tokens": options.prompt_tokens,
        "new_tokens": options.new_tokens,
        "runs": options.runs,
        "threads": threads,
        "kernels": session.instance.kernels,
        "emulated": session.instance.emulated,
        "prefill_tok_s": statistics.median(prefill),
        "prefill_tok_s_spread": [min(prefill), max(prefill)],
        "decode_tok_s": decode_tok_s,
        "decode_tok_s_spread": [min(decode), max(decode)] if decode else [0.0, 0.0],
        "ttft_s": ttft,
        "ttft_kv_s": ttft,
        "load_s": load_s,
        "bytes_per_token": bytes_per_token,
        "read_bandwidth_bytes_s": bandwidth,
        "bandwidth_share": decode_tok_s * bytes_per_token / bandwidth if bandwidth else 0.0,
        "multiply_adds_s": multiply_adds or None,
        "arithmetic_share": (
            statistics.median(prefill) * _multiply_adds_of_a_token(program) / multiply_adds
            if multiply_adds
            else None
        ),
        "peak_rss_bytes": memory,
        "device_memory_bytes": device_memory or None,
        "file_size_bytes": program.size,
        "samples": {
            "prefill_tok_s": prefill,
            "decode_tok_s": decode,
            "ttft_s": [run.ttft_s for run in runs],
        },
        "lookahead": None,
        "profile": None,
    }
    if options.profile:
        tell("the time of each op")
        document["profile"] = _profile(session, prompt, options)
    if options.lookahead:
        document["lookahead"] = measure_lookahead(
            session, options.lookahead, prompt, options.new_tokens, options.runs, tell
        )
    if session.mode == "hybrid":
        tell("the same prompt one token at a time")
        del session
        kv = Session(program, options.threads, mode="kv")
        document["ttft_kv_s"] = _run(kv, prompt, 1).ttft_s
    return document


def _require_room(session: Session, prompt_tokens: int, new_tokens: int) -> None:
    if prompt_tokens + new_tokens > session.context:
        raise ConfigError(
            f"{prompt_tokens} prompt and {new_tokens} new tokens are more than the "
            f"context of {session.context}",
            "Use fewer, or export with a larger --context.",
        )


def _run(session: Session, prompt: list[int], new_tokens: int) -> Run:
    session.rewind(0)
    started = time.perf_counter()
    token = int(session.feed(prompt).argmax())
    first = time.perf_counter()
    left = new_tokens - 1
    while left > 0 and session.chooses_tokens:  # as an answer that is alone is made there
        chosen = session.chain(token, _GREEDY, [0.0] * min(left, _CHAIN))
        token, left = chosen[-1], left - len(chosen)
    for _ in range(left):
        token = int(session.feed([token]).argmax())
    return Run(first - started, time.perf_counter() - first)


def _profile(session: Session, prompt: list[int], options: BenchOptions) -> dict[str, Any]:
    def prefill() -> None:
        session.rewind(0)
        session.feed(prompt)

    def decode() -> None:
        session.rewind(len(prompt))
        for i in range(options.new_tokens - 1):
            session.feed([prompt[i % len(prompt)]])

    return {
        phase.__name__: profile_of(session.instance, phase, options.runs)
        for phase in (prefill, decode)
    }


def _multiply_adds_of_a_token(program: Program) -> int:
    """Of a prompt: the layers' matrices; the head is needed once."""
    layers = (w for w in program.weights if re.search(r"(?:^|\.)\d+\.", w["name"]))
    return sum(math.prod(w["shape"]) for w in layers if w["encoding"].startswith("matrix"))


def _bytes_per_token(program: Program, options: BenchOptions) -> int:
    """Weights, and the part of the KV cache that a token in the middle of the answer reads."""
    method = next(m for m in program.methods if m["name"] == KV_METHOD)
    context = int(program.states[0]["shape"][1])
    filled = options.prompt_tokens + options.new_tokens // 2
    cache = sum(s["bytes"] for s in program.states) * filled // context
    return int(method["weight_bytes_read"] + cache)
