"""A load generator: clients that ask a server at the same time, and what each of them sees."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from satchel.errors import ConfigError, SatchelError
from satchel.remote import Remote

QUESTIONS = (
    "Explain how a heat pump warms a house in winter, and where its limits are.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "What should I know before I adopt an old dog? Give me a list.",
    "Summarise the causes of the First World War for a pupil of fourteen.",
    "How does a hash table work, and what happens when two keys collide?",
    "Plan three days in Lisbon for a family with two small children.",
    "Which vegetables can I sow in March in a cold climate, and how?",
    "Explain compound interest with an example that uses round numbers.",
    "Write a polite letter to a landlord about a broken radiator.",
    "What is the difference between a virus and a bacterium?",
    "Give me a recipe for bread with four ingredients, step by step.",
    "How do tides come about, and why are there two of them a day?",
)
_WORDS = (
    "the river runs past old mills and quiet towns where people mend nets by the light of lamps "
    "while boats carry grain stone and letters from one harbour to the next before winter comes"
).split()


@dataclass(frozen=True)
class LoadOptions:
    """How the clients ask."""

    clients: int = 4
    requests: int = 4  # of each client
    new_tokens: int = 64
    prompt_words: int = 0  # so many more before each question, other ones each time
    shared_words: int = 0  # and so many that all have in common, in front
    model: str | None = None
    seed: int = 0
    prompts: Sequence[str] = ()  # what is asked instead of these questions, one after the other
    temperature: float = 0.0


@dataclass
class _Seen:
    """What the clients saw."""

    first: list[float] = field(default_factory=list)  # seconds to the first token
    gaps: list[float] = field(default_factory=list)  # between two pieces of text
    whole: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    errors: list[str] = field(default_factory=list)


def measure_load(remote: Remote, options: LoadOptions) -> dict[str, Any]:
    """Let the clients ask, one question after the other each, and return what it was like."""
    if options.clients < 1 or options.requests < 1:
        raise ConfigError("there must be at least one client with one request")
    model = options.model or str(remote.models()[0]["id"])
    seen, lock = _Seen(), threading.Lock()
    begin = threading.Barrier(options.clients + 1)

    def client(number: int) -> None:
        begin.wait()
        for turn in range(options.requests):
            _ask(remote, model, options, number, turn, seen, lock)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(options.clients)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if not seen.whole:
        raise SatchelError(f"no request succeeded: {seen.errors[0] if seen.errors else ''}")
    return {
        "url": remote.url,
        "model": model,
        "clients": options.clients,
        "requests": len(seen.whole),
        "errors": len(seen.errors),
        "seconds": seconds,
        "prompt_tokens": seen.prompt_tokens,
        "cached_tokens": seen.cached_tokens,
        "new_tokens": seen.new_tokens,
        "tok_s": seen.new_tokens / seconds,
        "requests_s": len(seen.whole) / seconds,
        "ttft_s": percentiles(seen.first),
        "gap_s": percentiles(seen.gaps),
        "answer_s": percentiles(seen.whole),
    }


def prompt_of(options: LoadOptions, number: int, turn: int) -> str:
    """The question of a client's turn; the same options give the same questions.

    >>> prompt_of(LoadOptions(), 0, 0) == prompt_of(LoadOptions(), 0, 0)
    True
    """
    at = number + turn * options.clients
    if options.prompts:
        return options.prompts[at % len(options.prompts)]
    shared = random.Random(options.seed)
    own = random.Random(f"{options.seed} {number} {turn}")
    words = [shared.choice(_WORDS) for _ in range(options.shared_words)]
    words += [own.choice(_WORDS) for _ in range(options.prompt_words)]
    question = QUESTIONS[at % len(QUESTIONS)]
    return f"{' '.join(words)}\n\n{question}" if words else question


def _ask(
    remote: Remote,
    model: str,
    options: LoadOptions,
    number: int,
    turn: int,
    seen: _Seen,
    lock: threading.Lock,
) -> None:
    fields = {
        "model": model,
        "messages": [{"role": "user", "content": prompt_of(options, number, turn)}],
        "max_tokens": options.new_tokens,
        "temperature": options.temperature,
        "seed": number + turn * options.clients,
        "ignore_eos": True,  # where it is known, all answers are equally long
    }
    started = time.perf_counter()
    times: list[float] = []
    usage: dict[str, Any] = {}
    try:
        for event in remote.chat(fields):
            usage = event.get("usage") or usage
            if event.get("choices") and _has_text(event["choices"][0].get("delta") or {}):
                times.append(time.perf_counter())
    except SatchelError as error:
        with lock:
            seen.errors.append(str(error))
        return
    ended = time.perf_counter()
    with lock:
        if times:
            seen.first.append(times[0] - started)
            seen.gaps += [after - before for before, after in pairwise(times)]
        seen.whole.append(ended - started)
        seen.prompt_tokens += usage.get("prompt_tokens", 0)
        seen.new_tokens += usage.get("completion_tokens", len(times))
        details = usage.get("prompt_tokens_details") or {}
        seen.cached_tokens += details.get("cached_tokens") or 0


def _has_text(delta: dict[str, Any]) -> bool:
    return bool(delta.get("content") or delta.get("reasoning_content"))


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """
    >>> percentiles([0.1, 0.2, 0.3, 0.4])["p50"]
    0.2
    """
    ordered = sorted(values)

    def at(share: float) -> float | None:
        if not ordered:
            return None
        return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]

    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0)}
