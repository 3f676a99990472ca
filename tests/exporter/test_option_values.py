"""Any value of any option, from a YAML file or from Python, is taken or is an error of its own."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.small_checkpoint import write_small
from satchel.cli.main import main
from satchel.errors import SatchelError
from satchel.exporter import ExportOptions, prepare_export
from satchel.options import options_of

# The chip's compiler is no part of this, and files are not to be found by chance.
NAMES = sorted({each.name for each in options_of(ExportOptions)} - {"target", "lora", "adapters"})
_sizes = st.sampled_from([-1, 0, 1, 2, 3, 16, 32, 64, 255, 256, 2**31, 2**63, 10**400])
_recipes = ["8da4w", "keep", "fp16", "16a4w", "plain", "gptq", "kv", "lookahead", "built-in"]
_odd = ["", "8,0", "prompt:a b", "layers.*", "[", "(a+)+$", "\0", "\x1b[2J", "é" * 40]
_words = st.sampled_from([*_recipes, *_odd])
_plain = st.none() | st.booleans() | _sizes | st.floats() | _words | st.text(max_size=8)
values = st.recursive(
    _plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)
chosen = st.dictionaries(st.sampled_from(NAMES), values, min_size=1, max_size=4)
# The same examples every time; new ones: SATCHEL_RANDOM_OPTIONS=1 python -m pytest THIS_FILE
many = settings(
    max_examples=150,
    derandomize="SATCHEL_RANDOM_OPTIONS" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("options") / "m")


@many
@given(choices=chosen)
def test_from_a_yaml_file(
    choices: dict[str, Any], checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = checkpoint.parent / "options.yaml"
    file.write_text(json.dumps(choices), encoding="utf-8")  # JSON is YAML
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = main(["export", str(checkpoint), "--config", str(file), "--plan"])
    shown = capsys.readouterr()
    assert status in (0, 1), shown.err
    assert "bug" not in shown.err, f"{choices}: {shown.err}"
    assert shown.out if status == 0 else shown.err.startswith("satchel: ")


# From Python a type checker sees to the types.
_of_type = {
    "int": _sizes,
    "bool": st.booleans(),
    "str": _words,
    "tuple[int, int]": st.tuples(_sizes, _sizes),
    "tuple[str, ...]": st.lists(_words, max_size=2).map(tuple),
    "Mapping[str, str]": st.dictionaries(_words, _words, max_size=2),
    "Mapping[str, Any]": st.dictionaries(
        st.sampled_from(["get_bos_id", "get_eos_ids", "bos"]), values, max_size=2
    ),
}
_types = {each.name: str(each.type).removesuffix(" | None") for each in options_of(ExportOptions)}
typed = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: _of_type[_types[name]] for name in names})
)


@many
@given(choices=typed)
def test_from_python(choices: dict[str, Any], checkpoint: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            prepare_export(checkpoint, ExportOptions(**choices)).plan()
        except SatchelError as error:
            assert error.message
