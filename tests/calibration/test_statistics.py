"""What the layers see, against transformers; the cache; what is refused before the long work."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from exporter.small_checkpoint import write_small
from satchel.calibration import layers, store
from satchel.calibration.layers import layer_inputs, token_weights
from satchel.calibration.texts import read_calibration
from satchel.checkpoints import open_checkpoint
from satchel.cli.main import main
from satchel.errors import ConfigError, EvaluationError, RecipeError
from satchel.exporter import ExportOptions, prepare_export
from satchel.exporter.weights import WeightPacker
from satchel.llm.tokenizer import Tokenizer, read_tokenizer
from satchel.models import build_model
from support.tiny_models import tiny_model, write_checkpoint

TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom. " * 8


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma2"])
def test_moments_are_those_of_transformers(model_type: str, tmp_path: Path) -> None:
    import torch

    model = tiny_model(model_type, tie_word_embeddings=model_type == "gemma2", head_dim=16)
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", model))
    windows = [tuple(range(40, 80)), tuple(range(10, 33))]
    seen: dict[str, list[Any]] = {}

    def watch(name: str) -> Any:
        return lambda _module, args: seen.setdefault(name, []).append(args[0][0].numpy())

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(watch(f"{name}.weight"))
    with torch.no_grad():
        for window in windows:
            model(torch.tensor([window]))
    if model_type == "gemma2":
        seen["model.embed_tokens.weight"] = seen.pop("lm_head.weight")
    packer = WeightPacker(checkpoint, 1)
    found = list(layer_inputs(build_model(checkpoint.config), packer.rows, windows))
    assert sorted(name for one in found for name in one.weights) == sorted(seen)
    for one in found:
        for name in one.weights:
            counts = [token_weights(len(x)) for x in seen[name]]
            total = sum((x * c[:, None]).T @ x for x, c in zip(seen[name], counts, strict=True))
            expected = total / sum(c.sum() for c in counts)
            limit = 1e-4 * float(np.diagonal(expected).mean())
            np.testing.assert_allclose(one.moments.second, expected, rtol=1e-3, atol=limit)
            every = np.concatenate(seen[name])
            np.testing.assert_allclose(
                one.moments.largest, np.abs(every).max(axis=0), rtol=1e-3, atol=1e-4
            )


def test_one_layer_at_a_time_is_in_memory(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(
        write_small(tmp_path / "m", num_hidden_layers=4, weights_of={"num_hidden_layers": 4})
    )
    packer, alive, most = WeightPacker(checkpoint, 1), [], 0

    def read(weight: Any, start: int, stop: int) -> Any:
        nonlocal most
        array = packer.rows(weight, start, stop)
        alive.append((weakref.ref(array), weight.name.split(".")[2]))
        held = {layer for ref, layer in alive if ref() is not None and layer.isdigit()}
        most = max(most, len(held))
        return array

    assert list(layer_inputs(build_model(checkpoint.config), read, [(1, 2, 3)]))
    assert most == 1


def test_the_first_token_has_its_share() -> None:
    weights = token_weights(256)
    assert weights[0] / weights.sum() == pytest.approx(layers.FIRST_TOKEN_SHARE)
    assert (weights[1:] == 1).all()


def test_another_recipe_does_not_run_the_model_again(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_small(tmp_path / "m")
    one = satchel.export(folder, tmp_path / "a.satchel", calibrate=text)
    runs = []
    real = layers.layer_inputs
    monkeypatch.setattr(layers, "layer_inputs", lambda *a: runs.append(1) or real(*a))
    for number, choices in enumerate(
        [{"recipe": "16a4w"}, {"rounding": "search"}, {"group_size": 64}]
    ):
        satchel.export(folder, tmp_path / f"{number}.satchel", calibrate=text, **choices)
    again = satchel.export(folder, tmp_path / "b.satchel", calibrate=text)
    assert not runs
    assert again.read_bytes() == one.read_bytes()
    satchel.export(folder, tmp_path / "c.satchel", calibrate=text, calibrate_limit=100)
    assert len(runs) == 1  # another text is another text
    for index in store.statistics_folder().glob("*/index.json"):
        index.write_text("{")
    satchel.export(folder, tmp_path / "d.satchel", calibrate=text, calibrate_limit=100)
    assert len(runs) == 2  # a damaged one is as good as none
    write_small(
        tmp_path / "m", lambda tensors: tensors.update({k: v * 2 for k, v in tensors.items()})
    )
    satchel.export(folder, tmp_path / "e.satchel", calibrate=text, calibrate_limit=100)
    assert len(runs) == 3  # and so is another checkpoint


@pytest.mark.parametrize("recipe", ["8da4w", "16a4w", "8a8w"])
def test_calibrated_layers_lose_less(recipe: str, tmp_path: Path, text: str) -> None:
    folder = write_checkpoint(
        tmp_path / "m", tiny_model("llama", hidden_size=128, intermediate_size=192)
    )
    checkpoint = open_checkpoint(folder)
    packer = WeightPacker(checkpoint, 1)
    model = build_model(checkpoint.config)
    weights = {w.name: w for w in model.method("kv_forward", 1, 8).weights()}
    tokenizer = Tokenizer(read_tokenizer(checkpoint.tokenizer))
    windows = read_calibration(text, tokenizer).windows
    inputs = list(layer_inputs(model, packer.rows, windows))
    totals = []
    for rounding in ("plain", "search", "gptq"):
        path = satchel.export(
            folder,
            tmp_path / f"{rounding}.satchel",
            recipe=recipe,
            calibrate=text,
            rounding=rounding,
        )
        program = satchel.load(path, verify=True)
        total = 0.0
        for seen in inputs:
            for name in seen.weights:
                if name != "lm_head.weight":
                    lost = program.weight(name) - packer.rows(weights[name], 0, 10**6)
                    total += float(np.einsum("rc,cd,rd", lost, seen.moments.second, lost))
        totals.append(total)
        assert program.metadata["recipe"]["rounding"] == rounding
        assert program.metadata["recipe"]["calibration"]["source"] == "text.txt"
    assert totals[0] > totals[1] > totals[2]


def test_a_tied_table_serves_both_its_uses(tmp_path: Path, text: str) -> None:
    tied = {"tie_word_embeddings": True}
    folder = write_small(tmp_path / "m", weights_of=tied, **tied)
    job = prepare_export(folder, ExportOptions(calibrate=text))
    program = satchel.load(job.run(tmp_path / "m.satchel"), verify=True)
    (kept,) = (w["name"] for w in program.weights if "embed" in w["name"])
    table = open_checkpoint(folder).read(kept, slice(0, 320))
    assert np.abs(program.weight(kept) - table).max() < 0.1
    assert job.default_output.name == "m-cpu-8da4w-g32-gptq.satchel"


def test_prompts_and_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_small(tmp_path / "m")
    options = ("--calibrate", "prompt:tell me a story", "--plan")
    assert main(["export", str(folder), *options]) == 0
    assert "gptq" in capsys.readouterr().out
    assert not store.statistics_folder().exists()  # a plan runs nothing


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ({"calibrate": "prompt:"}, EvaluationError, "the prompt has 0 tokens"),
        ({"calibrate": "nowhere.txt"}, EvaluationError, "nowhere.txt cannot be read"),
        ({"calibrate": "task:"}, ConfigError, "names no task"),
        ({"calibrate_limit": 5}, ConfigError, "needs something to calibrate on"),
        ({"calibrate": "prompt:ab", "calibrate_limit": 0}, ConfigError, "must be above 0"),
        ({"rounding": "gptq"}, RecipeError, "needs to know what the layers see"),
        ({"recipe": "fp16", "calibrate": "prompt:ab"}, RecipeError, "does not round weights"),
        ({"recipe": "fp32", "rounding": "search"}, RecipeError, "does not round weights"),
    ],
    ids=str,
)
def test_refused_before_any_weight_is_read(
    tmp_path: Path, choices: dict[str, Any], error: type[Exception], message: str
) -> None:
    folder = write_small(tmp_path / "m")
    with pytest.raises(error, match=message):
        prepare_export(folder, ExportOptions(**choices))


def test_yaml_may_say_it(tmp_path: Path, text: str) -> None:
    from satchel.exporter.options_file import read_options_file

    path = tmp_path / "options.yaml"
    path.write_text(f"calibrate: {text}\ncalibrate-limit: 300\nrounding: search\n")
    assert read_options_file(path) == {
        "calibrate": text,
        "calibrate_limit": 300,
        "rounding": "search",
    }
