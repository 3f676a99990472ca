"""What is refused before the long work: recipes, shards, targets, a missing extra."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import satchel
from satchel.backends import find_target
from satchel.backends.qnn import export, vendor
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.target import QnnTarget
from satchel.backends.target import Draft, LanguageModelRequest, Samples
from satchel.cli.main import main
from satchel.errors import BackendError, ConfigError, RecipeError, SatchelError
from satchel.exporter import ExportOptions, prepare_export
from satchel.graph.ir import DType
from satchel.models import build_model
from satchel.program.writer import ProgramWriter
from satchel.quantize.recipe import Recipe, apply_recipe
from support.real_configs import real_config

REFUSED = {
    "of the CPU": ({"recipe": "8da4w"}, RecipeError, "does not run the recipe 8da4w.*16a4w"),
    "floats of 32 bits": ({"recipe": "fp32"}, RecipeError, "16 bits, and not.*Use fp16"),
    "blocks on v68": (
        {"recipe": "16a4w", "target": "qnn:SM8350"},
        RecipeError,
        "v68.*no 4-bit weights in blocks.*recipe 16a8w",
    ),
    "an override": (
        {"overrides": {"layers.0.*": "8da4w"}},
        RecipeError,
        "does not run the recipe 8da4w",
    ),
    "bits of activations": (
        {"activation_bits": 8},
        RecipeError,
        "16a4w has 16.*overrides PATTERN=8a8w",
    ),
    "a wide cache on v69": (
        {"kv_bits": 16, "target": "qnn:SM8450"},
        RecipeError,
        "v69.*KV cache of 8 bits; v73 has 16",
    ),
    "a wide cache of 8 bits": (
        {"kv_bits": 16, "recipe": "8a8w"},
        RecipeError,
        "16 bits goes with activations of 16",
    ),
    "a cache of floats": ({"kv_bits": 32}, RecipeError, "KV cache has 8 or 16 bits"),
    "many shards": ({"num_sharding": 99}, ConfigError, "shards at most, not 99"),
    "shards on the CPU": (
        {"target": "cpu", "num_sharding": 2},
        ConfigError,
        "num_sharding is for qnn, and the target is cpu",
    ),
    "a chip": ({"target": "qnn:SM1"}, ConfigError, "no target 'qnn:SM1'"),
    "a target": ({"target": "tpu"}, ConfigError, "no target 'tpu'.*qnn:SM8750"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "PACKAGES", ())  # found out even where nothing is installed
    options, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        options = dict(options)
        name = options.pop("target", "qnn:SM8750")
        own = {k: options.pop(k) for k in ("num_sharding",) if k in options}
        target = satchel.find_target(name, **own)
        prepare_export(tiny_checkpoint, ExportOptions(**{"target": target, **options}))


def test_usual_recipes(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "PACKAGES", ())
    names = {}
    for target in ("cpu", "qnn:SM8350", "qnn:SM8750"):
        job = prepare_export(tiny_checkpoint, ExportOptions(target=target, group_size=None))
        recipe = job.portable.recipe
        names[target] = (recipe.name, recipe.kv_bits, str(job.default_output))
    assert names["cpu"][:2] == ("8da4w", 16)
    assert names["qnn:SM8350"][:2] == ("16a8w", 8)
    assert names["qnn:SM8750"] == ("16a4w", 8, "tiny-qnn-SM8750-16a4w-g32.satchel")


def test_a_context_above_the_chips_limit(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "PACKAGES", ())
    target = QnnTarget(replace(find_chip("qnn:SM8750"), context_limit=50_000), num_sharding=1)
    with pytest.raises(ConfigError, match="shard 0 takes .* GB, and a context of SM8750 holds"):
        prepare_export(tiny_checkpoint, ExportOptions(target=target))


def test_the_missing_extra(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vendor, "PACKAGES", ("onnxruntime-absent",))
    assert main(["export", str(tiny_checkpoint), "--target", "qnn:SM8750"]) == 1
    assert "pip install 'satchel[qnn]'" in capsys.readouterr().err
    with pytest.raises(BackendError, match="needs onnxruntime-absent"):
        prepare_export(tiny_checkpoint, ExportOptions(target="qnn:SM8750"))


def test_plan(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vendor, "PACKAGES", ())
    arguments = ["export", str(tiny_checkpoint), "--target", "qnn:SM8750", "--plan"]
    assert main([*arguments, "--num-sharding", "3", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]["payloads"]["qnn:SM8750"]
    assert plan["target"] == "qnn:SM8750" and plan["shared_weights"] is True
    assert len(plan["shards"]) == 3
    assert plan["binary_bytes"] == sum(s["binary_bytes"] for s in plan["shards"])
    compiler = max(s["compile_memory_bytes"] for s in plan["shards"])
    assert plan["compile_memory_bytes"] == compiler  # more than the reference for this small head
    assert main([*arguments, "--num-sharding", "2"]) == 0
    shown = capsys.readouterr().out
    assert "2 shards for qnn:SM8750" in shown and "weights shared" in shown
    assert not list(tiny_checkpoint.parent.glob("*qnn*"))


@pytest.mark.parametrize(
    ("name", "target"),
    [("phi4-mini", "qnn:SM8350"), ("phi4-mini", "qnn:SM8750"), ("qwen3-4b", "qnn:SM8750")],
)
def test_models_of_the_guides_fit_by_default(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In shards that 3 GB are enough to compile, heads of any size included."""
    monkeypatch.setattr(vendor, "PACKAGES", ())
    chip = find_target(target)
    model, recipe = build_model(real_config(name)), Recipe.named(chip.usual.recipe)
    asked = LanguageModelRequest("hybrid", 2048, chip.usual.prefill_ar_len, None)
    wishes = chip.methods(asked)
    cache = DType.u8
    graphs = tuple(model.method(wish.name, wish.tokens, 2048, cache) for wish in wishes)
    encodings = apply_recipe(list(graphs), recipe, {})
    writer = ProgramWriter(graphs, encodings)
    sizes = {w.value.name: w.codes_size + w.scales_size for w in writer.weights}
    recipe = replace(recipe, cache=cache)
    samples = Samples(tokens=list(range(100)))
    draft = Draft(
        graphs, tuple(wishes), encodings, sizes, recipe, recipe.name, 2048, samples=samples
    )
    compilation = chip.prepare(draft)
    assert compilation is not None
    shards = compilation.plan().document["shards"]
    assert max(shard["compile_memory_bytes"] for shard in shards) <= export.COMPILE_MEMORY
    assert compilation.plan().peak_memory <= 2.9e9, "with the exporting process, 3 GB"


def test_errors_are_the_inputs_fault() -> None:
    assert issubclass(BackendError, SatchelError)
    assert BackendError("x", "y", 1002).code == 1002
