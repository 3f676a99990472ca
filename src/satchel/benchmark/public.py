"""``satchel.bench``: the speed of any program, from Python."""

from __future__ import annotations

import os
from typing import Any

from satchel.errors import ConfigError
from satchel.runtime.program import Program, load


def bench(
    program: Program | str | os.PathLike[str],
    *,
    prompt_tokens: int | None = None,
    new_tokens: int | None = None,
    warmup: int = 1,
    runs: int = 3,
    threads: int = 0,
    profile: bool = False,
) -> dict[str, Any]:
    """Measure speed and memory; the document is that of ``satchel bench --json``.

    Lengths that are not given fit the context of a language model; other models have none.

    >>> bench("model.satchel", prompt_tokens=8, new_tokens=4, runs=1)["prompt_tokens"]
    8
    """
    from satchel.benchmark.llm import BenchOptions, measure
    from satchel.benchmark.module import ModuleBench, measure_module

    counts = {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "runs": runs}
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise ConfigError(f"{name} must be a whole number above 0, not {count!r}")
    opened = program if isinstance(program, Program) else load(program)
    if not opened.is_language_model:
        return measure_module(opened, ModuleBench(max(1, warmup), runs, threads, profile=profile))
    context = opened.language_model.context
    prompt = prompt_tokens or min(256, context * 3 // 4)
    new = new_tokens or min(64, context - prompt)
    return measure(opened, BenchOptions(prompt, new, warmup, runs, threads, profile=profile))
