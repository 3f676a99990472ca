"""What an export refuses, each with the name of what is wrong, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from exporter.small_checkpoint import Tensors, write_small
from satchel.errors import (
    CheckpointError,
    ConfigError,
    OutputExistsError,
    RecipeError,
    TokenizerError,
    UnsupportedModelError,
)

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"
NORM = "model.layers.0.input_layernorm.weight"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out" / "model.satchel"


def nothing_written(output: Path) -> bool:
    return not output.parent.exists() or not list(output.parent.iterdir())


def test_a_missing_tensor(tmp_path: Path, output: Path) -> None:
    folder = write_small(tmp_path / "m", lambda t: t.pop(Q_PROJ))
    with pytest.raises(CheckpointError, match=f"lacks {Q_PROJ}.*incomplete"):
        satchel.export(folder, output)
    assert nothing_written(output)


def test_many_missing_tensors_are_counted(tmp_path: Path, output: Path) -> None:
    folder = write_small(tmp_path / "m", weights_of={"num_hidden_layers": 1})
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\..* and 4 more"):
        satchel.export(folder, output)


def test_a_tensor_that_the_model_does_not_use(tmp_path: Path, output: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(32, np.float32)

    folder = write_small(tmp_path / "m", add)
    with pytest.raises(CheckpointError, match="does not use: model.layers.0.self_attn.q_norm"):
        satchel.export(folder, output)
    assert nothing_written(output)


def test_tensors_known_to_be_unused_are_no_error(tmp_path: Path, output: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(16, np.float32)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()

    folder = write_small(tmp_path / "m", add, tie_word_embeddings=True)
    program = satchel.load(satchel.export(folder, output))
    assert "lm_head.weight" not in {w["name"] for w in program.weights}


@pytest.mark.parametrize("wrong", [(128, 64), (64, 128), (128, 128, 1), (128 * 128,)])
def test_a_tensor_of_the_wrong_shape(tmp_path: Path, output: Path, wrong: tuple[int, ...]) -> None:
    folder = write_small(tmp_path / "m", lambda t: t.update({Q_PROJ: np.ones(wrong, np.float32)}))
    with pytest.raises(CheckpointError, match=f"{Q_PROJ} has the shape .* asks for .128, 128."):
        satchel.export(folder, output)
    assert nothing_written(output)


@pytest.mark.parametrize(
    "change",
    [
        {"intermediate_size": 256},
        {"hidden_size": 64},
        {"vocab_size": 288},
        {"num_key_value_heads": 4},
        {"head_dim": 64},
        {"num_hidden_layers": 3},
        {"num_hidden_layers": 1},
        {"tie_word_embeddings": True, "attention_bias": True},
    ],
    ids=str,
)
def test_a_config_that_contradicts_the_weights(
    tmp_path: Path, output: Path, change: dict[str, Any]
) -> None:
    folder = write_small(tmp_path / "m", **change)
    with pytest.raises(CheckpointError):
        satchel.export(folder, output)
    assert nothing_written(output)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("recipe", ["fp32", "fp16", "8da4w"])
@pytest.mark.parametrize(("name", "place"), [(Q_PROJ, (77, 13)), (NORM, (5,))])
def test_a_weight_that_is_no_number(
    tmp_path: Path, output: Path, bad: float, recipe: str, name: str, place: tuple[int, ...]
) -> None:
    folder = write_small(tmp_path / "m", lambda t: t[name].__setitem__(place, bad))
    where = ", ".join(map(str, place))
    with pytest.raises(CheckpointError, match=rf"{name} holds {bad} at \[{where}\].*damaged"):
        satchel.export(folder, output, recipe=recipe)
    assert nothing_written(output)


@pytest.mark.parametrize("recipe", ["fp16", "8da4w"])
def test_a_weight_too_large_for_16_bits(tmp_path: Path, output: Path, recipe: str) -> None:
    folder = write_small(tmp_path / "m", lambda t: t[Q_PROJ].__setitem__((3, 4), 1e9))
    with pytest.raises(CheckpointError, match=f"{Q_PROJ} has weights too large.*fp32"):
        satchel.export(folder, output, recipe=recipe)
    assert nothing_written(output)
    satchel.export(folder, output, recipe="fp32")


def test_an_unknown_field_of_the_config(tmp_path: Path, output: Path) -> None:
    folder = write_small(tmp_path / "m", sliding_window=16)
    with pytest.raises(ConfigError, match="'sliding_window' of this llama model is not understood"):
        satchel.export(folder, output)


def test_an_architecture_without_a_file(tmp_path: Path, output: Path) -> None:
    folder = write_small(tmp_path / "m", model_type="mamba")
    with pytest.raises(UnsupportedModelError, match="'mamba'"):
        satchel.export(folder, output)


def test_a_tokenizer_larger_than_the_embedding(tmp_path: Path, output: Path) -> None:
    satchel.export(write_small(tmp_path / "fits", tokens=320), tmp_path / "fits.satchel")
    folder = write_small(tmp_path / "m", tokens=321)
    names = folder / "tokenizer_config.json"
    settings = json.loads(names.read_text()) | {"eos_token": "<extra_62>"}  # one without a row
    names.write_text(json.dumps(settings))
    with pytest.raises(TokenizerError, match="has 321 tokens, and the embedding only 320"):
        satchel.export(folder, output)


def test_no_tokenizer(tmp_path: Path, output: Path) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer\. Put its tokenizer.json"):
        satchel.export(folder, output)
    (folder / "vocab.json").touch()
    with pytest.raises(CheckpointError, match=r"vocab.json is not read.*save_pretrained"):
        satchel.export(folder, output)


@pytest.mark.parametrize(
    ("end", "error", "message"),
    [
        (320, TokenizerError, "names token 320, which does not exist"),
        ("</s>", ConfigError, "end tokens .* are not in the vocabulary"),
    ],
)
def test_an_end_token_that_does_not_exist(
    tmp_path: Path, output: Path, end: Any, error: type[Exception], message: str
) -> None:
    folder = write_small(tmp_path / "m")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, end]}))
    with pytest.raises(error, match=message):
        satchel.export(folder, output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_size": 256}, "group size 256 does not divide the 128 columns.*Use 32 or 64"),
        ({"group_size": 128}, "group size 128 does not divide the 192 columns.*Use 32 or 64 for"),
        ({"group_size": 48}, "group size 48 is not supported"),
        ({"embedding": (8, 256)}, "256 does not divide the 128 columns of model.embed_tokens"),
        ({"recipe": "int3"}, "no recipe 'int3'"),
    ],
)
def test_a_recipe_that_does_not_fit(
    tmp_path: Path, output: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        satchel.export(write_small(tmp_path / "m"), output, **options)
    assert nothing_written(output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "batch"}, "no mode 'batch'"),
        ({"context": 1}, "too short"),
        ({"prefill_ar_len": 1}, "at least 2"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        satchel.export("anything", **options)


def test_an_existing_file_is_not_overwritten(tmp_path: Path, output: Path) -> None:
    folder = write_small(tmp_path / "m")
    output.parent.mkdir()
    output.write_text("precious")
    with pytest.raises(OutputExistsError, match="exists"):
        satchel.export(folder, output)
    assert output.read_text() == "precious"
    satchel.export(folder, output, overwrite=True)
    assert satchel.load(output, verify=True).metadata["kind"] == "llm"


@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupted_export_leaves_nothing(tmp_path: Path, output: Path, existing: bool) -> None:
    def interrupt(_what: str, done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    folder = write_small(tmp_path / "m")
    output.parent.mkdir()
    if existing:
        output.write_text("precious")
    with pytest.raises(KeyboardInterrupt):
        satchel.export(folder, output, overwrite=existing, progress=interrupt)
    assert [p.name for p in output.parent.iterdir()] == ([output.name] if existing else [])
    assert not existing or output.read_text() == "precious"


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path, output: Path) -> None:
    def appear(_what: str, done: int, total: int) -> None:
        output.write_text("precious")

    with pytest.raises(OutputExistsError):
        satchel.export(write_small(tmp_path / "m"), output, progress=appear)
    assert [p.name for p in output.parent.iterdir()] == [output.name]
    assert output.read_text() == "precious"
