"""Schemes, overrides and KV-cache bits: what may be asked for, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from satchel.cli.main import main
from satchel.encodings.encoding import Encoding
from satchel.errors import ConfigError, RecipeError
from satchel.exporter import ExportOptions, prepare_export
from satchel.exporter import weights as weights_module
from satchel.exporter.options_file import read_options_file
from satchel.graph.ir import DType, RowSource, Weight
from satchel.quantize import schemes as schemes_package
from satchel.quantize.overrides import Override
from satchel.quantize.recipe import Recipe
from satchel.quantize.schemes import schemes
from support.programs import stored_values
from support.tiny_llm import write_tiny_llm

DOWN, UP, FIRST_DOWN = (
    "model.layers.1.mlp.down_proj.weight",
    "model.layers.1.mlp.up_proj.weight",
    "model.layers.0.mlp.down_proj.weight",
)
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llm(tmp_path_factory.mktemp("schemes") / "tiny-llama")


def _encodings(program: satchel.Program) -> dict[str, tuple[str, int]]:
    return {w["name"]: (w["encoding"], w["group"]) for w in program.weights}


def _weight(role: str = "linear", cols: int = 192) -> Weight:
    return Weight("model.layers.0.mlp.down_proj.weight", (16, cols), role, RowSource("w"))


def test_a_scheme_is_a_file() -> None:
    folder = Path(schemes_package.__file__).parent
    files = {p.stem[1:] for p in folder.glob("_*.py") if not p.stem.startswith("__")}
    assert set(schemes()) == files == {"fp32", "fp16", "keep", "16a8w", "8a8w", "16a4w", "8da4w"}
    assert list(schemes()) == ["fp32", "fp16", "keep", "16a8w", "8a8w", "16a4w", "8da4w"]
    for name, scheme in schemes().items():
        assert scheme.name == name
        assert {scheme.bits, scheme.head_bits or scheme.bits} <= set(scheme.forms)


@pytest.mark.parametrize(
    ("recipe", "role", "encoding", "activations"),
    [
        (Recipe.named("8a8w"), "linear", Encoding("matrix_q8", 192), "int8"),
        (Recipe.named("8a8w"), "head", Encoding("matrix_q8", 192), "int8"),
        (Recipe.named("8a8w", embedding=(4, 32)), "embedding", Encoding("matrix_q4", 32), "int8"),
        (Recipe.named("16a8w"), "linear", Encoding("matrix_q8", 192), "int16"),
        (Recipe.named("16a8w"), "embedding", Encoding("matrix_q8", 192), "int16"),
        (Recipe.named("16a4w"), "linear", Encoding("matrix_lpbq4", 32), "int16"),
        (Recipe.named("16a4w", 16), "linear", Encoding("matrix_lpbq4", 16), "int16"),
        (Recipe.named("16a4w", 64), "head", Encoding("matrix_q8", 192), "int16"),
        (Recipe.named("16a4w", 64, head_bits=4), "head", Encoding("matrix_lpbq4", 64), "int16"),
        (Recipe.named("16a4w"), "vector", Encoding("f32"), "f32"),
        (Recipe.named("fp16"), "head", Encoding("matrix_f16"), "f32"),
    ],
)
def test_what_a_scheme_stores(
    recipe: Recipe, role: str, encoding: Encoding, activations: str
) -> None:
    assert recipe.choose(_weight(role), role) == (encoding, activations)


@pytest.mark.parametrize(
    ("arguments", "message", "advice"),
    [
        ({"name": "8a8w", "group_size": 32}, "8a8w has one scale for each row", ""),
        ({"name": "16a8w", "group_size": 64}, "16a8w has one scale for each row", ""),
        ({"name": "16a4w", "group_size": 512}, "group size 512", "Use 16, 32, 64, 128, 256."),
        ({"name": "8a8w", "head_bits": 4}, "the head can have 8 bits, not 4", ""),
        ({"name": "fp16", "kv_bits": 4}, "8, 16 or 32 bits, not 4", ""),
        ({"name": "8da4w", "overrides": {"*": "16a3w"}}, "no recipe '16a3w'", "16a8w"),
        ({"name": "8da4w", "overrides": {"*": "8da4w:16"}}, "group size 16", "32, 64"),
        ({"name": "8da4w", "overrides": {"*": "8da4w:x"}}, "'8da4w:x' is not a scheme", "8da4w:64"),
        ({"name": "8da4w", "overrides": {"*": "fp16:32"}}, "fp16 does not quantise", ""),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str, advice: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        Recipe.named(**arguments)
    assert advice in caught.value.advice


def test_a_block_must_divide_the_columns() -> None:
    with pytest.raises(RecipeError, match="64 does not divide the 96 columns") as caught:
        Recipe.named("16a4w", 64).encoding(_weight(cols=96), "linear")
    assert caught.value.advice == "Use 16 or 32 for this model."
    with pytest.raises(
        RecipeError, match="8 numbers or a multiple, unlike the 42 columns"
    ) as caught:
        Recipe.named("8a8w").encoding(_weight(cols=42), "linear")
    assert caught.value.advice == "Use fp16 or fp32 for this model."


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("model.layers.1.mlp.down_proj.weight", True),
        ("layers.1.mlp.down_proj", True),
        ("layers.1.mlp.down", True),
        ("layers.*.mlp.down", True),
        ("layers.[12].*", True),
        ("*.mlp.*", True),
        ("*", True),
        ("layers.1.mlp", False),
        ("mlp.down", False),
        ("model.layers.1.mlp.down", False),
        ("layers.1.MLP.down", False),
    ],
)
def test_patterns(pattern: str, matches: bool) -> None:
    assert Override.parse(pattern, "fp16").matches(DOWN) == matches


@pytest.mark.parametrize(("bits", "dtype"), [(8, DType.u8), (16, DType.f16), (32, DType.f32)])
@pytest.mark.parametrize("name", ["fp32", "fp16", "8da4w", "16a4w"])
def test_cache_bits_go_with_any_recipe(name: str, bits: int, dtype: DType) -> None:
    recipe = Recipe.named(name, kv_bits=bits)
    assert (recipe.cache, recipe.kv_bits) == (dtype, bits)
    assert f"KV cache {dtype.name}" in recipe.describe()


def test_caches_of_8_bits_take_a_byte_and_a_tail(checkpoint: Path, tmp_path: Path) -> None:
    program = satchel.load(satchel.export(checkpoint, tmp_path / "a", kv_bits=8, context=40))
    assert {(s["dtype"], *s["shape"]) for s in program.states} == {("u8", 2, 40, 16 + 8)}
    assert len(program.states) == 4


def test_overrides_are_stored_and_the_last_match_counts(checkpoint: Path, tmp_path: Path) -> None:
    overrides = {"*.mlp.*": "16a4w:16", "layers.1.mlp.up": "fp16", "layers.*.mlp.down": "16a8w"}
    path = satchel.export(checkpoint, tmp_path / "mixed.satchel", overrides=overrides, kv_bits=8)
    program = satchel.load(path)
    found = _encodings(program)
    assert found[DOWN] == found[FIRST_DOWN] == ("matrix_q8", 96)
    assert found[UP] == ("matrix_f16", 0)
    assert found["model.layers.1.mlp.gate_proj.weight"] == ("matrix_lpbq4", 16)
    assert found["model.layers.1.self_attn.q_proj.weight"] == ("matrix_q4", 32)
    recipe = program.metadata["recipe"]
    assert recipe["overrides"] == overrides
    assert (recipe["kv_cache"], recipe["name"]) == ("u8", "8da4w")
    assert recipe["description"] == (
        "8da4w, group size 32, embedding 4,32, head 4 bits, KV cache u8, *.mlp.*=16a4w:16, "
        "layers.1.mlp.up=fp16, layers.*.mlp.down=16a8w"
    )
    (logits,) = program.instance(1).method("kv_forward").run([1], [0])
    assert np.isfinite(logits).all() and logits.std() > 0


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("layers.*.mlp.dwon", "layers.*.mlp.down"),
        ("layers.9.self_attn.q", "layers.*.self_attn.q"),
        ("embed_token", "embed_tokens"),
    ],
)
def test_an_override_that_matches_nothing(checkpoint: Path, pattern: str, near: str) -> None:
    message = f"the override '{pattern}' matches no layer".replace("*", r"\*")
    with pytest.raises(RecipeError, match=message) as caught:
        prepare_export(checkpoint, ExportOptions(overrides={pattern: "16a8w"}))
    assert caught.value.advice == f"Did you mean {near!r}?"


@pytest.mark.parametrize("pattern", ["lm_head", "model.norm.weight"])
def test_a_tied_head_and_vectors_are_no_layers(checkpoint: Path, pattern: str) -> None:
    with pytest.raises(RecipeError, match="matches no layer"):
        prepare_export(checkpoint, ExportOptions(overrides={pattern: "16a8w"}))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"recipe": "8a8w"}, "8a8w"),
        ({"recipe": "16a4w", "group_size": 16}, "16a4w-g16"),
        ({"recipe": "16a8w", "kv_bits": 8}, "16a8w-kv8"),
        ({"recipe": "fp32", "kv_bits": 32}, "fp32"),
        ({"recipe": "fp16", "kv_bits": 32}, "fp16-kv32"),
        ({"overrides": {"*.down": "fp16"}}, "8da4w-g32-mixed"),
        ({"recipe": "16a4w", "head_bits": 4, "embedding": (4, 0)}, "16a4w-g32-e4_0-h4"),
    ],
)
def test_the_default_name_tells_it(checkpoint: Path, options: dict[str, Any], name: str) -> None:
    job = prepare_export(checkpoint, ExportOptions(**options))
    assert job.default_output.name == f"tiny-llama-cpu-{name}.satchel"


@pytest.mark.parametrize("rows", [16, 32, 4096])
def test_planes_of_scales_from_blocks_of_rows(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """However many rows are packed at a time, the file is that of the whole matrix."""
    monkeypatch.setattr(weights_module, "BLOCK_BYTES", 4 * 64 * rows)
    options = {"recipe": "16a4w", "group_size": 64, "context": 32, "overrides": {"*.down": "fp32"}}
    job = prepare_export(checkpoint, ExportOptions(**options))
    program = satchel.load(job.run(tmp_path / "a.satchel"), verify=True)
    tensors = satchel.load(
        satchel.export(checkpoint, tmp_path / "float.satchel", recipe="fp32", context=32)
    )
    checked = 0
    for name, (kind, group) in _encodings(program).items():
        if kind == "matrix_lpbq4":
            wanted = stored_values(tensors.weight(name), Encoding(kind, group))
            np.testing.assert_array_equal(program.weight(name), wanted, err_msg=name)
            checked += 1
    assert checked == 12


def test_from_the_command_line_and_from_a_file(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, output = tmp_path / "export.yaml", tmp_path / "a.satchel"
    config.write_text("recipe: 16a4w\nkv-bits: 8\noverrides:\n  layers.*.mlp.*: 8a8w\n")
    flags = ["--override", "layers.0.mlp.down=fp16", "--override", "*.q=16a8w", "-o", str(output)]
    assert main(["export", str(checkpoint), "--config", str(config), *flags]) == 0
    found = _encodings(satchel.load(output))
    assert found[DOWN] == ("matrix_q8", 96) and found[FIRST_DOWN] == ("matrix_f16", 0)
    assert found["model.layers.0.self_attn.q_proj.weight"] == ("matrix_q8", 64)
    capsys.readouterr()
    assert main(["inspect", str(output), "--json"]) == 0
    recipe = json.loads(capsys.readouterr().out)["recipe"]
    assert list(recipe["overrides"].values()) == ["8a8w", "fp16", "16a8w"]
    assert recipe["kv_cache"] == "u8"
    assert main(["inspect", str(output)]) == 0
    out = capsys.readouterr().out
    assert "KV cache u8, layers.*.mlp.*=8a8w, layers.0.mlp.down=fp16, *.q=16a8w" in out


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("overrides: {'*.down': 16a8w}", {"*.down": "16a8w"}),
        ("overrides: ['*.down=16a8w', '*.q=8da4w:64']", {"*.down": "16a8w", "*.q": "8da4w:64"}),
        ("kv_bits: 8", None),
    ],
)
def test_files(tmp_path: Path, text: str, wanted: dict[str, str] | None) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert read_options_file(path).get("overrides") == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overrides: {'*.down': 16}", "overrides in .*a.yaml: 16 is not a text"),
        ("overrides: ['*.down']", "'\\*.down' is not PATTERN=SCHEME"),
        ("overrides: 16a8w", "must be dict or list"),
        ("kv_bits: eight", "kv_bits in"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_options_file(path)


@pytest.mark.parametrize("text", ["layers.down", "=16a8w", "layers.down="])
def test_a_wrong_flag(checkpoint: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["export", str(checkpoint), "--override", text])
    assert caught.value.code == 2
    assert "is not PATTERN=SCHEME" in capsys.readouterr().err
