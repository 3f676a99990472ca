"""Tasks through lm-eval, with local data and no network; skipped where it is not installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import satchel
from satchel.errors import EvaluationError
from satchel.eval import EvaluationOptions, evaluate
from satchel.eval.harness import model_class
from satchel.eval.tasks import TaskChoice, Tasks
from support.tiny_models import tiny_model, write_checkpoint

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install '.[eval]'")

ITEMS = [
    ("Cooking", "He cracks an egg. He", ["pours it in.", "sits.", "jumps over it.", "sleeps"], 0),
    ("Golf", "A man swings. The ball", ["flies.", "sinks in the lake", "eats", "wins."], 1),
    ("Chess", "She wins. Then", ["they shake hands.", "it rains", "pieces fall.", "a fish"], 2),
]


@pytest.fixture(autouse=True)
def own_datasets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    place = tmp_path_factory.mktemp("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", place)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tasks") / "model", tiny_model("llama"))


@pytest.fixture(scope="module")
def fp32(folder: Path) -> Path:
    output = folder.parent / "fp32.satchel"
    return satchel.export(folder, output, recipe="fp32", context=128)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """HellaSwag's own form of rows."""
    path = tmp_path / "rows.jsonl"
    documents = [
        {"activity_label": a, "ctx_a": c, "ctx_b": "", "endings": e, "label": str(n), "ind": i}
        for i, (a, c, e, n) in enumerate(ITEMS)
    ]
    path.write_text("\n".join(map(json.dumps, documents)))
    return path


def requests(*arguments: Any) -> list[Any]:
    return [SimpleNamespace(args=a) for a in arguments]


def test_answers_are_those_of_the_transformers_model_of_lm_eval(folder: Path, fp32: Path) -> None:
    """The same requests to both, the second being lm-eval's own `hf`."""
    pytest.importorskip("accelerate", reason="lm-eval's model hf needs accelerate")
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1)
    mine = model_class()(str(fp32), threads=1)
    pairs = requests(("The cat", " sat"), ("The cat", " flew away"), ("", "Hello"), ("a ", "b"))
    for found, wanted in zip(mine.loglikelihood(pairs), theirs.loglikelihood(pairs), strict=True):
        assert abs(found[0] - wanted[0]) < 1e-3
        assert found[1] == wanted[1]
    texts = requests(("A short text.",), ("A text longer than the context. " * 10,))
    for got, expected in zip(
        mine.loglikelihood_rolling(texts), theirs.loglikelihood_rolling(texts), strict=True
    ):
        assert abs(got - expected) < 1e-2
    prompts = requests(("Once upon", {"until": ["\x00"], "max_gen_toks": 6, "do_sample": False}))
    assert mine.generate_until(prompts) == theirs.generate_until(prompts)


def test_lm_eval_knows_the_model_type(fp32: Path, rows: Path, tmp_path: Path) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    (tmp_path / "mine.yaml").write_text(
        json.dumps(
            {
                "task": "my_task",
                "dataset_path": "json",
                "dataset_kwargs": {"data_files": {"test": str(rows)}},
                "test_split": "test",
                "output_type": "multiple_choice",
                "doc_to_text": "{{activity_label}}: {{ctx_a}}",
                "doc_to_target": "{{label}}",
                "doc_to_choice": "{{endings}}",
                "metric_list": [{"metric": "acc"}],
            }
        )
    )
    model_class()
    manager = TaskManager(include_path=str(tmp_path))
    direct = lm_eval.simple_evaluate(
        model="satchel", model_args={"program": str(fp32)}, tasks=["my_task"], task_manager=manager
    )
    options = EvaluationOptions(tasks=("my_task",), task_path=str(tmp_path))
    found = evaluate(fp32, options)["tasks"]["my_task"]["device"]
    assert found["acc"] == direct["results"]["my_task"]["acc,none"]
    assert found["items"] == 3


def test_hellaswag_of_lm_eval_with_local_rows(fp32: Path, rows: Path, tmp_path: Path) -> None:
    """The same accuracies as from a plain file with the same texts."""
    plain = tmp_path / "plain.txt"
    lines = [[f"{a}: {c}", str(n), *e] for a, c, e, n in ITEMS]
    plain.write_text("\n".join(line for item in lines for line in item) + "\n")
    tasks = EvaluationOptions(tasks=("hellaswag",), task_data={"hellaswag": str(rows)})
    found = evaluate(fp32, tasks)["tasks"]["hellaswag"]["device"]
    wanted = evaluate(fp32, EvaluationOptions(hellaswag=plain))["tasks"]["hellaswag"]["device"]
    for metric in ("acc", "acc_norm", "items"):
        assert found[metric] == wanted[metric], metric


def test_an_interrupted_run_goes_on(
    fp32: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from satchel.eval import harness

    options = EvaluationOptions(tasks=("hellaswag",), task_data={"hellaswag": str(rows)})
    score = harness.score_continuation
    calls = 0

    def stopping(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr(harness, "score_continuation", stopping)
    with pytest.raises(KeyboardInterrupt):
        evaluate(fp32, options)
    found = evaluate(fp32, options)
    assert calls == 6 + 12 - 5
    monkeypatch.setattr(harness, "score_continuation", score)
    again = evaluate(fp32, EvaluationOptions(**{**vars(options), "restart": True}))
    assert found["tasks"] == again["tasks"]


def test_wikitext_with_a_local_page(fp32: Path, tmp_path: Path) -> None:
    """A rolling likelihood: words and bytes are those of the page."""
    page = "= A page =\n\nIt has some words , and some numbers .\n" * 6
    path = tmp_path / "page.jsonl"
    path.write_text(json.dumps({"page": page}))
    options = EvaluationOptions(tasks=("wikitext",), task_data={"wikitext": str(path)})
    found = evaluate(fp32, options)["tasks"]["wikitext"]["device"]
    assert found["bits_per_byte"] > 0
    assert abs(2 ** found["bits_per_byte"] - found["byte_perplexity"]) < 1e-6


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (TaskChoice(("hellaswag",)), "data of the task hellaswag is not on this machine"),
        (TaskChoice(("helaswag",)), "lm-eval has no task 'helaswag'"),
        (TaskChoice(("wikitext",), data={"hellaswag": "x"}), "which is not chosen"),
        (TaskChoice(("wikitext",), data={"wikitext": "x.doc"}), "not a file with data"),
        (TaskChoice(("wikitext",), folder="no-such-folder"), "not a folder with tasks"),
    ],
)
def test_tasks_that_cannot_be_run_are_errors(choice: TaskChoice, said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        Tasks(choice)


def test_a_task_that_is_broken_is_an_error(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "why"}')
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(rows)}}}
    task = {"task": "broken_task", "test_split": "nowhere", "doc_to_text": "x", **data}
    (tmp_path / "broken.yaml").write_text(json.dumps(task))
    with pytest.raises(EvaluationError, match=r"broken_task cannot be loaded: KeyError.*nowhere"):
        Tasks(TaskChoice(("broken_task",), folder=str(tmp_path)))


def test_rows_of_another_task_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "why"}')
    with pytest.raises(EvaluationError, match="does not fit the task hellaswag"):
        Tasks(TaskChoice(("hellaswag",), data={"hellaswag": str(path)}))


def test_nothing_is_fetched_unless_told() -> None:
    with pytest.raises(EvaluationError):
        Tasks(TaskChoice(("hellaswag",)))
    assert sys.modules["datasets.config"].HF_HUB_OFFLINE is True  # type: ignore[attr-defined]
    assert sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE is True  # type: ignore[attr-defined]


def test_texts_of_a_task_are_its_items(rows: Path) -> None:
    texts = Tasks(TaskChoice(("hellaswag",), data={"hellaswag": str(rows)})).texts()
    assert len(texts) == len(ITEMS)
    for text, (activity, context, endings, _) in zip(texts, ITEMS, strict=True):
        assert activity in text and context in text and text.endswith(endings[0])
