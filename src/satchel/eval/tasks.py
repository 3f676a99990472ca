"""Runs tasks of lm-eval, from its own data where they are cached or from files."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from satchel.errors import EvaluationError
from satchel.eval.lm_eval_package import import_harness

# The loader of each kind of file, in the names that the datasets library has for them.
_LOADERS = {
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".raw": "text",
}
_BOOTSTRAP = 100  # for the few metrics whose error has no formula


@dataclass(frozen=True)
class TaskChoice:
    """Which tasks, and where their data is.

    ``folder`` holds task files (YAML) of the user's own. ``data`` gives a task's rows from a
    file, in the form that its dataset has. Without ``download`` nothing is fetched.
    """

    names: tuple[str, ...]
    folder: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    download: bool = False


class Tasks:
    """Tasks whose data is there. Making it is the test of that."""

    def __init__(self, choice: TaskChoice) -> None:
        for name, file in choice.data.items():
            if name not in choice.names:
                raise EvaluationError(f"there is data for the task {name!r}, which is not chosen")
            if not Path(file).is_file() or Path(file).suffix not in _LOADERS:
                kinds = ", ".join(_LOADERS)
                raise EvaluationError(
                    f"{file} is not a file with data for {name}", f"Kinds of files: {kinds}."
                )
        if choice.folder is not None and not Path(choice.folder).is_dir():
            raise EvaluationError(f"{choice.folder} is not a folder with tasks", "Check the path.")
        import_harness(download=choice.download)
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        logging.getLogger("datasets").setLevel(logging.ERROR)
        self._manager = _manager(choice.folder)
        self._choice = choice
        self._changed = tempfile.TemporaryDirectory(prefix="satchel-tasks-")
        known = self._manager.all_tasks
        for name in choice.names:
            if name not in known:
                raise EvaluationError(
                    f"lm-eval has no task {name!r}",
                    "`lm-eval ls tasks` lists them; --task-path adds a folder of your own.",
                )
        for name in choice.names:
            self._load(name)

    def _spec(self, name: str) -> str:
        """What lm-eval loads: a name, or a file that changes the task of that name."""
        file = self._choice.data.get(name)
        if file is None:
            return name
        entry = self._manager.task_index[name]
        if entry.yaml_path is None:
            raise EvaluationError(f"the task {name} is a program and takes no data from a file")
        changes = {
            "include": str(entry.yaml_path),
            "task": name,
            "dataset_path": _LOADERS[Path(file).suffix],
            "dataset_name": None,
            "dataset_kwargs": {"data_files": {"test": os.path.abspath(file)}},
            "training_split": None,
            "validation_split": None,
            "test_split": "test",
            "fewshot_split": None,
        }
        path = Path(self._changed.name) / f"{name}.yaml"
        path.write_text(json.dumps(changes), encoding="utf-8")  # JSON is YAML
        return str(path)

    def _load(self, name: str) -> None:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                self._manager.load([self._spec(name)])
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(". ")
            if name in self._choice.data:
                raise EvaluationError(
                    f"{self._choice.data[name]} does not fit the task {name}: {reason}",
                    "Its rows must have the fields of the task's own dataset.",
                ) from error
            if not isinstance(error, (OSError, ValueError)):  # what datasets raises for these
                message = f"the task {name} cannot be loaded: {type(error).__name__}: {reason}"
                raise EvaluationError(message, "Install what it needs, or mend it.") from error
            raise EvaluationError(
                f"the data of the task {name} is not on this machine: {reason}",
                "Fetch it with --download, give it with --task-data "
                f"{name}=FILE, or use --text or --hellaswag.",
            ) from error

    def texts(self) -> list[str]:
        """What the tasks' items say, one text each: the question and an answer."""
        found = []
        for name in self._choice.names:
            with contextlib.redirect_stdout(sys.stderr):
                tasks = self._manager.load([self._spec(name)])["tasks"].values()
                for task in tasks:
                    task.build_all_requests()
            for task in tasks:
                # Of an item with several answers there are several instances.
                first = {instance.doc_id: instance for instance in reversed(task.instances)}
                for _, instance in sorted(first.items()):
                    found.append("".join(a for a in instance.args if isinstance(a, str)))
        return found

    def run(self, model: Any, limit: int | None, kept: Path) -> dict[str, dict[str, Any]]:
        """Metrics by task of a model of lm-eval's. Answers are kept at ``kept``, so that an
        interrupted run goes on."""
        kept.parent.mkdir(parents=True, exist_ok=True)
        evaluator = import_harness("evaluator")
        # It asks git for a revision, and git complains where there is no repository.
        evaluator.get_git_commit_hash = lambda: None
        # What lm-eval prints must not get into the JSON on standard output.
        with contextlib.redirect_stdout(sys.stderr):
            document = evaluator.simple_evaluate(
                model=model,
                tasks=[self._spec(name) for name in self._choice.names],
                limit=limit,
                task_manager=self._manager,
                use_cache=str(kept),
                bootstrap_iters=_BOOTSTRAP,
                log_samples=False,
            )
        samples = document.get("n-samples", {})
        return {
            name: _metrics(results) | _count(samples.get(name))
            for name, results in document["results"].items()
        }


@cache
def _manager(folder: str | None) -> Any:
    """All tasks there are; reading their thousands of files takes a while."""
    return import_harness("tasks").TaskManager(include_path=folder)


def kept_files(kept: Path) -> Sequence[Path]:
    """The files that lm-eval makes of the place it was given for its answers."""
    return sorted(kept.parent.glob(kept.name + "_rank*"))


def _metrics(results: Mapping[str, Any]) -> dict[str, float]:
    """``acc,none`` is the metric acc without a filter."""
    metrics = {}
    for key, value in results.items():
        name, _, chosen = key.partition(",")
        if chosen and isinstance(value, (int, float)):
            metrics[name if chosen == "none" else key] = float(value)
    return metrics


def _count(samples: Mapping[str, int] | None) -> dict[str, int]:
    return {"items": samples["effective"]} if samples else {}
