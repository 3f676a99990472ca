"""An evaluation as ``satchel eval`` runs it: all checks first, then phase by phase."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.backends import open_instance
from satchel.errors import ConfigError
from satchel.eval.harness import model_class
from satchel.eval.hellaswag import Item, digest_of_items, measure_hellaswag, read_hellaswag
from satchel.eval.perplexity import Perplexity, compare, measure_perplexity
from satchel.eval.phases import PhaseMaker, check_phases
from satchel.eval.record import Record, evaluations_folder, key_digest
from satchel.eval.tasks import TaskChoice, Tasks, kept_files
from satchel.eval.texts import digest_of, leading_tokens, read_text, text_tokens
from satchel.eval.windows import Window, split_windows
from satchel.llm.llm import LLM
from satchel.llm.session import Session
from satchel.runtime.program import Program
from satchel.sources.progress import Progress, silent

DEFAULT_WINDOW = 2048


@dataclass(frozen=True)
class EvaluationOptions:
    """What to evaluate. ``limit`` is tokens of the text, and items of each task."""

    text: str | os.PathLike[str] | None = None
    hellaswag: str | os.PathLike[str] | None = None
    tasks: tuple[str, ...] = ()
    task_path: str | None = None
    task_data: Mapping[str, str] = field(default_factory=dict)
    download: bool = False
    limit: int | None = None
    window: int = DEFAULT_WINDOW
    stride: int | None = None
    phases: tuple[str, ...] = ("device",)
    checkpoint: str | os.PathLike[str] | None = None
    threads: int = 0
    restart: bool = False


def evaluate(
    program: str | os.PathLike[str] | Program,
    options: EvaluationOptions,
    progress: Progress = silent,
    counted: Progress = silent,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The document of ``satchel eval --json``.

    ``progress`` is told of bytes (of an export), ``counted`` of tokens and items.

    >>> _ = Path("text.txt").write_text("Pack a model once. " * 20)
    >>> options = EvaluationOptions(text="text.txt", window=32, phases=("qdq", "device"))
    >>> phases = evaluate("model.satchel", options)["phases"]
    >>> abs(phases["device"]["ppl"] / phases["qdq"]["ppl"] - 1) < 0.01
    True
    """
    started = time.perf_counter()
    if not isinstance(program, Program):
        program = Program(program)
    job = _Evaluation(program, options, progress, counted, say)
    return job.run() | {"seconds": time.perf_counter() - started}


class _Evaluation:
    """Whatever is wrong with the input is found while this is made."""

    def __init__(
        self,
        program: Program,
        options: EvaluationOptions,
        progress: Progress,
        counted: Progress,
        say: Callable[[str], None],
    ) -> None:
        if options.text is None and options.hellaswag is None and not options.tasks:
            raise ConfigError(
                "there is nothing to evaluate", "Give --text, --hellaswag or --tasks."
            )
        if options.hellaswag is not None and "hellaswag" in options.tasks:
            raise ConfigError("hellaswag is chosen twice", "Leave out --hellaswag or the task.")
        self.options, self.program, self.counted = options, program, counted
        names = check_phases(options.phases)
        # What the chip would do is not started for the reference's run alone.
        self.first = "qdq" if "qdq" in names and "device" not in names else "device"
        reference = open_instance(program, reference=True) if self.first == "qdq" else None
        self.llm = LLM(program, options.threads, instance=reference)
        tokenizer = self.llm.tokenizer
        self.tokens: list[int] = []
        self.windows: list[Window] = []
        self.lead = leading_tokens(tokenizer)
        self.window = min(options.window, self.llm.session.context)
        if options.text is not None:
            text = read_text(Path(options.text))
            self.tokens = text_tokens(tokenizer, text, options.limit, str(options.text))
            self.windows = split_windows(self.tokens, self.lead, self.window, options.stride)
        self.items: list[Item] = []
        if options.hellaswag is not None:
            self.items = read_hellaswag(Path(options.hellaswag), options.limit)
        self.maker = PhaseMaker(program, names, options.checkpoint, options.threads, progress, say)
        self.tasks: Tasks | None = None
        if options.tasks:
            choice = TaskChoice(
                options.tasks, options.task_path, options.task_data, options.download
            )
            self.tasks = Tasks(choice)

    def run(self) -> dict[str, Any]:
        options = self.options
        phases: dict[str, Perplexity] = {}
        tasks: dict[str, dict[str, Any]] = {}
        for phase in self.maker.names:
            session = self.llm.session if phase == self.first else self.maker.open(phase)
            facts = {
                "phase": phase,
                "program": session.program.checksum,
                "kernels": session.instance.kernels,
                "satchel": version("satchel"),
            }
            if self.windows:
                phases[phase] = self._perplexity(phase, session, facts)
            if self.items:
                tasks.setdefault("hellaswag", {})[phase] = self._hellaswag(phase, session, facts)
            if self.tasks is not None:
                for name, metrics in self._run_tasks(phase, session, facts).items():
                    tasks.setdefault(name, {})[phase] = metrics
        return {
            "program": str(self.program.path),
            "checksum": self.program.checksum,
            "name": self.program.about.name,
            "recipe": self.program.about.recipe_description,
            "text": None if options.text is None else str(options.text),
            "text_digest": digest_of(self.tokens, self.lead) if self.windows else None,
            "tokens": sum(w.counted for w in self.windows),
            "window": self.window,
            "stride": options.stride,
            "limit": options.limit,
            "phases": {phase: found.to_dict() for phase, found in phases.items()},
            "device_over_qdq": (
                compare(phases["device"], phases["qdq"])
                if {"device", "qdq"} <= phases.keys()
                else None
            ),
            "tasks": tasks,
        }

    def _perplexity(self, phase: str, session: Session, facts: dict[str, Any]) -> Perplexity:
        key = facts | {
            "kind": "perplexity",
            "text": digest_of(self.tokens, self.lead),
            "window": self.window,
            "stride": self.options.stride,
            "limit": self.options.limit,
        }
        record = Record(key, self.options.restart)
        told = partial(self.counted, f"Perplexity of {phase}, tokens")
        return measure_perplexity(session, self.windows, record, told)

    def _hellaswag(self, phase: str, session: Session, facts: dict[str, Any]) -> dict[str, Any]:
        key = facts | {"kind": "hellaswag", "items": digest_of_items(self.items)}
        record = Record(key, self.options.restart)
        told = partial(self.counted, f"HellaSwag of {phase}, items")
        return measure_hellaswag(session, self.llm.tokenizer, self.items, record, told)

    def _run_tasks(self, phase: str, session: Session, facts: dict[str, Any]) -> dict[str, Any]:
        assert self.tasks is not None
        kept = evaluations_folder() / key_digest(facts | {"kind": "lm-eval"})
        if self.options.restart:
            for path in kept_files(kept):
                path.unlink()
        told = partial(self.counted, f"Tasks of {phase}, requests")
        model = model_class()(self.llm, session=session, told=told)
        return self.tasks.run(model, self.options.limit, kept)
