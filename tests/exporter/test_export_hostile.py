"""Checkpoints that were made to take all memory or time, or that hold what nobody expects."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import satchel
from exporter.small_checkpoint import CONFIG, write_small
from satchel.checkpoints import open_checkpoint
from satchel.checkpoints.adapter import open_adapter
from satchel.checkpoints.base import TokenizerSource
from satchel.errors import CheckpointError, ConfigError, SatchelError, TokenizerError
from satchel.exporter.options_file import read_options_file
from satchel.graph.ir import Sym
from satchel.graph.memory_plan import plan_memory
from satchel.llm.tokenizer import read_tokenizer
from satchel.models import build_model


@pytest.mark.parametrize("value", [10**9, 10**15, 10**400])
@pytest.mark.parametrize("field", ["num_hidden_layers", "head_dim", "num_attention_heads"])
def test_absurd_sizes_are_refused_before_graphs_are_built(
    field: str, value: int, tmp_path: Path
) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({**CONFIG, field: value}))
    begin = time.monotonic()
    with pytest.raises((CheckpointError, ConfigError), match=field):
        satchel.export(folder, tmp_path / "out.satchel")
    assert time.monotonic() - begin < 5


def _plan_seconds(layers: int) -> float:
    graph = build_model({**CONFIG, "num_hidden_layers": layers}).method(
        "prefill_forward", Sym("S", 32), 64
    )
    begin = time.process_time()
    plan_memory(graph)
    return time.process_time() - begin


def test_planning_takes_time_in_proportion_to_the_layers() -> None:
    """Ten times the layers took a hundred times as long."""
    best = {layers: min(_plan_seconds(layers) for _ in range(3)) for layers in (12, 120)}
    assert best[120] < 25 * max(best[12], 0.005)


def test_many_names_with_one_twice(tmp_path: Path) -> None:
    names = [f"tensor.{i}" for i in range(60_000)] + ["tensor.59999"]
    entries = (f'"{n}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for n in names)
    header = ("{" + ",".join(entries) + "}").encode()
    folder = write_small(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    begin = time.monotonic()
    with pytest.raises(CheckpointError, match=r"tensor\.59999|duplicate|twice|empty|invalid"):
        open_checkpoint(folder)
    assert time.monotonic() - begin < 10


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        open_checkpoint(folder)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    os.mkfifo(adapter / "adapter_config.json")
    with pytest.raises(CheckpointError, match="it is not a file"):
        open_adapter(adapter)


def _adapter(folder: Path, **fields: Any) -> Path:
    folder.mkdir()
    key = "base_model.model.model.layers.0." + "a" * 60 + ".lora_{}.weight"
    parts = {key.format("A"): np.zeros((2, 8), "f4"), key.format("B"): np.zeros((8, 2), "f4")}
    save_file(parts, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, **fields}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_an_endless_regular_expression_of_an_adapter(tmp_path: Path) -> None:
    begin = time.monotonic()
    adapter = open_adapter(_adapter(tmp_path / "a", rank_pattern={"(a+)+b": 3}))
    assert [part.rank for part in adapter.parts.values()] == [2]
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    "fields",
    [
        {"rank_pattern": {"(": 3}},
        {"rank_pattern": ["x"]},
        {"rank_pattern": {"a+": "many"}},
        {"alpha_pattern": {"a+": [1]}},
        {"lora_alpha": 10**400},
        {"r": 10**400},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_adapter_of_wrong_values(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"adapter_config\.json|rank"):
        open_adapter(_adapter(tmp_path / "a", **fields))


def test_tokens_that_are_beginnings_of_each_other(tmp_path: Path) -> None:
    """2,000 tokens of ``a`` would have two million merges of two thousand letters."""
    import base64

    tokens = [bytes([i]) for i in range(256)] + [b"a" * n for n in range(2, 1000)]
    lines = (f"{base64.b64encode(t).decode()} {rank}\n" for rank, t in enumerate(tokens))
    path = tmp_path / "tokenizer.model"
    path.write_text("".join(lines))
    with pytest.raises(TokenizerError, match="too many ways"):
        read_tokenizer(TokenizerSource("tiktoken", path))


def test_aliases_in_an_options_file(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    path = tmp_path / "options.yaml"
    path.write_text("\n".join([*lines, "recipe: *a59"]))
    with pytest.raises(ConfigError, match="aliases"):
        read_options_file(path)


_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 1 << 70),
        st.just(10**400),
        st.floats(),
        st.text(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
_fields = st.sampled_from(
    [
        *CONFIG,
        "rope_scaling",
        "rope_theta",
        "head_dim",
        "layer_types",
        "eos_token_id",
        "quantization_config",
        "rms_norm_eps",
        "hidden_act",
        "tie_word_embeddings",
    ]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.dictionaries(_fields, _values, min_size=1, max_size=3))
def test_any_configuration_is_exported_or_an_error(
    changes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_small(tmp_path_factory.mktemp("m"))
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    try:
        satchel.export(folder, folder / "out.satchel", recipe="fp32")
    except SatchelError as error:
        assert error.message
