"""An interrupted evaluation goes on where it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from satchel.eval import EvaluationOptions, evaluate
from satchel.eval import perplexity as module
from satchel.eval.record import Record, evaluations_folder


class Interrupting:
    """Counts the windows that are measured, and stops at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.measured = 0
        self.stop_at = -1
        score = module.score_window

        def counting(session: object, window: object) -> float:
            if self.measured == self.stop_at:
                raise KeyboardInterrupt
            self.measured += 1
            return score(session, window)  # type: ignore[arg-type]

        monkeypatch.setattr(module, "score_window", counting)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Interrupting:
    return Interrupting(monkeypatch)


def test_only_what_is_missing_is_measured(program: Path, text: Path, counter: Interrupting) -> None:
    options = EvaluationOptions(text=text, window=32, limit=320)
    wanted = evaluate(program, options)["phases"]["device"]
    assert (counter.measured, wanted["resumed_windows"]) == (10, 0)
    for path in evaluations_folder().iterdir():
        path.unlink()
    counter.measured, counter.stop_at = 0, 4
    with pytest.raises(KeyboardInterrupt):
        evaluate(program, options)
    counter.measured, counter.stop_at = 0, -1
    found = evaluate(program, options)["phases"]["device"]
    assert (counter.measured, found["resumed_windows"]) == (6, 4)
    assert found["nll"] == wanted["nll"]


def test_a_finished_one_answers_at_once_unless_told_to_start_over(
    program: Path, text: Path, counter: Interrupting
) -> None:
    options = EvaluationOptions(text=text, window=32, limit=96)
    first = evaluate(program, options)["phases"]["device"]
    again = evaluate(program, options)["phases"]["device"]
    assert counter.measured == 3
    assert again == first | {"resumed_windows": 3}
    evaluate(program, replace(options, restart=True))
    assert counter.measured == 6


@pytest.mark.parametrize("change", [{"window": 16}, {"limit": 64}, {"stride": 8}])
def test_another_cut_is_another_evaluation(
    program: Path, text: Path, counter: Interrupting, change: dict[str, int]
) -> None:
    options = EvaluationOptions(text=text, window=32, limit=96)
    evaluate(program, options)
    changed = evaluate(program, replace(options, **change))  # type: ignore[arg-type]
    assert changed["phases"]["device"]["resumed_windows"] == 0


def test_a_damaged_record_is_as_good_as_none(
    program: Path, text: Path, counter: Interrupting
) -> None:
    options = EvaluationOptions(text=text, window=32, limit=96)
    first = evaluate(program, options)["phases"]["device"]["nll"]
    (path,) = evaluations_folder().iterdir()
    for damage in (b"", b"[]", b'{"key": 1}', path.read_bytes()[:-9]):
        path.write_bytes(damage)
        assert evaluate(program, options)["phases"]["device"]["nll"] == first
    assert counter.measured == 15


def test_a_record_is_saved_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed outright loses a few seconds, not everything."""
    monkeypatch.setattr("satchel.eval.record._SAVE_EVERY_S", 0.0)
    record = Record({"kind": "test"})
    seen = []

    def measure(item: int) -> list[int]:
        seen.append(len(Record({"kind": "test"}).entries))
        return [item]

    assert record.complete([1, 2, 3], measure) == [[1], [2], [3]]
    assert seen == [0, 1, 2]
