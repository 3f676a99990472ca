"""Prints an answer as it comes, and what it took."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from satchel.cli.generation import generation_options, given_sampling
from satchel.cli.output import Aside, emit, emit_answer, print_json, say
from satchel.cli.repeat import each_run, is_repeated, median_lines, medians
from satchel.cli.terminal_text import wrapped
from satchel.llm.generation import Generation, GenerationStats
from satchel.llm.llm import LLM

_WHY = {
    "max_new_tokens": "stopped at --max-new-tokens or --seq-len",
    "context_full": "stopped because the context is full (--on-context-full slide goes on)",
    "stop_string": "stopped at a --stop text",
}


def answer(llm: LLM, prompt: str, arguments: argparse.Namespace) -> None:
    """One prompt, one answer, as text or as JSON."""
    raw = getattr(arguments, "raw", False)
    system = None if raw else arguments.system
    if raw and arguments.system:
        say("The system message is left out: a text that is continued has no place for it.")
    options = {"raw": raw, "system": system, **generation_options(arguments)}
    if getattr(arguments, "image", None):
        options["images"] = arguments.image
    if getattr(arguments, "iterations", None) and is_repeated(arguments):
        _answer_again(llm, prompt, options, arguments)
        return
    generation = llm.generate(prompt, **options)
    if arguments.json:
        print_json(_document(llm, generation.finish(), arguments))
        return
    _say_what_is_off(generation, arguments)
    stream(generation)
    say(summary(generation))


def _answer_again(
    llm: LLM, prompt: str, options: dict[str, Any], arguments: argparse.Namespace
) -> None:
    """The same answer several times, each from an empty cache; its text once."""
    runs: list[GenerationStats] = []
    for counts in each_run(arguments, say):
        llm.sessions.forget()
        generation = llm.generate(prompt, **options)
        if counts and not runs and not arguments.json:
            _say_what_is_off(generation, arguments)
            stream(generation)
        generation.finish()
        if counts:
            runs.append(generation.stats)
            say(summary(generation))
    found = medians(runs)
    if arguments.json:
        print_json({**_document(llm, generation, arguments), "medians": found})
        return
    for line in median_lines(found):
        emit(line)


def _document(llm: LLM, generation: Generation, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "text": generation.text,
        "tokens": generation.tokens,
        "stop_reason": generation.stop_reason,
        **generation.stats.to_dict(),
        "sampling": asdict(llm.sampling.changed(**given_sampling(arguments))),
        "mode": llm.session.mode,
        "adapter": llm.session.adapter,
        "threads": llm.session.instance.threads,
        "kernels": llm.session.instance.kernels,
        "medians": None,
    }


def _say_what_is_off(generation: Generation, arguments: argparse.Namespace) -> None:
    """One line if lookahead was asked for and is not, or only in part, to be had."""
    stats = generation.stats.lookahead
    if arguments.lookahead in (None, "off"):
        return
    if stats.off_because:
        say(f"Lookahead is off: {stats.off_because}.")
    elif not stats.branches:
        say("This program only takes guesses from the text so far; export it again for a window.")


def stream(generation: Generation) -> None:
    for piece in generation:
        emit_answer(piece)
    emit()


def summary(generation: Generation) -> str:
    """One line: how much, how fast, and why it ended if not by itself."""
    stats = generation.stats
    reused = f", {stats.reused_tokens} from the cache" if stats.reused_tokens else ""
    parts = [
        f"{stats.prompt_tokens} prompt tokens{reused}",
        f"{stats.new_tokens} new tokens",
        f"first after {stats.ttft_s:.2f} s",
    ]
    if stats.prefill_tok_s:
        parts.insert(1, f"read at {stats.prefill_tok_s:.1f} tok/s")
    if stats.decode_tok_s:
        parts.append(f"then {stats.decode_tok_s:.1f} tok/s")
    if stats.lookahead.guessing_steps:
        each = stats.lookahead.tokens / stats.lookahead.steps
        parts.append(f"{each:.2f} tokens a step")
    if stats.cut_tokens:
        parts.append(f"{stats.cut_tokens} older tokens were forgotten, the context being full")
    if stats.slides:
        times = "once" if stats.slides == 1 else f"{stats.slides} times"
        parts.append(f"the context was full {times}: the oldest half was forgotten")
    if generation.stop_reason in _WHY:
        parts.append(_WHY[generation.stop_reason])
    return Aside(wrapped("[" + " · ".join(parts) + "]"))
