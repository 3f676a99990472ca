"""A folder of results that was damaged, and experiments of odd values."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import satchel
from satchel.cli.main import main
from satchel.errors import SatchelError
from satchel.remarks import Remark
from satchel.sweeps.experiment import read_experiment
from satchel.sweeps.matrix import cells_of
from satchel.sweeps.results import Results

WHOLE: dict[str, Any] = {
    "name": "x",
    "models": ["random:tiny-llama", {"source": "tiny", "name": "a", "context": 96}],
    "recipes": ["fp32", "8da4w:64", {"name": "q", "recipe": "8da4w", "group_size": 32}],
    "targets": ["cpu"],
    "modes": ["hybrid"],
    "prompts": [16, {"tokens": 8, "new_tokens": 4}, {"file": "x"}],
    "devices": ["local"],
    "threads": [1],
    "peers": ["torch"],
    "runs": 1,
    "repeats": 1,
    "warmup": 0,
    "cool_down": {"seconds": 0.0, "temperature": 1.0},
    "time_limit": 20,
    "export": {"kv_bits": 16},
    "speed": True,
    "quality": {"text": "x", "limit": 10, "phases": ["device"]},
    "include": [{"models": ["random:tiny-llama"], "targets": ["vulkan"]}],
    "exclude": [{"models": "a*"}],
    "store": "kept",
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([10**400, "x" * 5000, "\0", "8da4w:" + "9" * 5000, "8da4w:²", [], [[]], {}]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _places(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = list(value.items()) if isinstance(value, dict) else []
    items = list(enumerate(value)) if isinstance(value, list) else items
    inner = [place for key, item in items for place in _places(item, (*where, key))]
    return [(*where, key) for key, _ in items] + inner


@settings(max_examples=60, deadline=None)
@given(place=st.sampled_from(_places(WHOLE)), odd=ODD)
def test_any_value_in_any_place_is_an_experiment_or_an_error(
    place: tuple[Any, ...], odd: Any
) -> None:
    document = copy.deepcopy(WHOLE)
    holder: Any = document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = odd
    try:
        cells = cells_of(read_experiment(document))
    except SatchelError as error:
        assert error.message and len(str(error)) < 20_000
    else:
        assert cells and all(isinstance(cell.threads, int) for cell in cells)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("runs", 1.5, "must be a whole number"),
        ("runs", float("inf"), "must be a whole number"),
        ("threads", [1.5], "must be a whole number"),
        ("threads", [99_999_999], "may be at most 1024"),
        ("prompts", [{"file": 5}], "must be a text"),
        ("time_limit", float("nan"), "must be a number"),
        ("export", [1], "must hold options"),
        ("store", 5, "store in the experiment must be a text"),
    ],
)
def test_numbers_that_cannot_be(key: str, value: Any, message: str) -> None:
    with pytest.raises(SatchelError, match=message):
        read_experiment({**WHOLE, key: value})


def test_a_damaged_record_is_done_again(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    assert [row["status"] for row in satchel.sweep(tiny, folder)] == ["ok"]
    (measured,) = folder.glob("records/cell-*.json")
    whole = measured.read_text()
    for damage in ("", "[" * 100_000, '{"name": 5}', "5", whole[:50]):
        measured.write_text(damage)
        with pytest.warns(Remark, match="is damaged, and counts as not done"):
            assert [row["status"] for row in Results(folder).rows()] == ["pending"]
    assert main(["report", str(folder)]) == 0
    told = capsys.readouterr().err
    assert f"{measured} is damaged" in told and "bug in Satchel" not in told
    with pytest.warns(Remark, match="is damaged"):
        assert [row["status"] for row in satchel.sweep(tiny, folder)] == ["ok"]
    plan = folder / "plan.json"
    for damage in ("", '{"cells": []}', '{"cells": [5]}', "[" * 100_000, json.dumps({})):
        plan.write_text(damage)
        assert main(["report", str(folder)]) == 1
        told = capsys.readouterr().err
        assert "Run " in told and "bug in Satchel" not in told
