"""``satchel.evaluate``: what quantisation cost a program, from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from satchel.eval.evaluation import DEFAULT_WINDOW, EvaluationOptions
from satchel.eval.evaluation import evaluate as evaluate_with
from satchel.progress import usual_progress
from satchel.runtime.program import Program


def evaluate(
    program: Program | str | os.PathLike[str],
    *,
    text: str | os.PathLike[str] | None = None,
    hellaswag: str | os.PathLike[str] | None = None,
    tasks: Sequence[str] = (),
    limit: int | None = None,
    window: int = DEFAULT_WINDOW,
    stride: int | None = None,
    phases: Sequence[str] = ("device",),
    checkpoint: str | os.PathLike[str] | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Perplexity on a text file and accuracy in tasks; the document of ``satchel eval --json``.

    >>> from pathlib import Path
    >>> _ = Path("words.txt").write_text("Pack a model once. " * 20)
    >>> evaluate("model.satchel", text="words.txt")["phases"]["device"]["ppl"] > 1
    True
    """
    options = EvaluationOptions(
        text=text,
        hellaswag=hellaswag,
        tasks=tuple(tasks),
        limit=limit,
        window=window,
        stride=stride,
        phases=tuple(phases),
        checkpoint=checkpoint,
        threads=threads,
    )
    bar = usual_progress()
    return evaluate_with(program, options, bar, bar)
