"""What an experiment's file says becomes cells, and what it says wrongly an error that helps."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.cli.main import main
from satchel.cli.sweep import only
from satchel.errors import ConfigError, SatchelError, UsageError
from satchel.remarks import Remark
from satchel.sweeps.axes import Prompt
from satchel.sweeps.experiment import CoolDown, read_experiment
from satchel.sweeps.matrix import cells_of
from satchel.sweeps.public import Sweep

TINY = "random:tiny-llama"


def labels(given: dict[str, Any]) -> list[str]:
    return [cell.label for cell in cells_of(read_experiment(given))]


def test_every_combination_once() -> None:
    given = {
        "models": [TINY, "random:tiny-qwen3"],
        "recipes": ["fp16", "8da4w:64"],
        "targets": ["cpu", "vulkan"],
        "modes": ["hybrid", "kv"],
        "prompts": [8, {"tokens": 16, "new_tokens": 4}],
        "threads": [1, 2],
    }
    found = labels(given)
    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2 * 2 * 2
    assert "tiny-qwen3 vulkan 8da4w:64 kv 16+4 2 threads" in found


def test_excludes_name_patterns_and_includes_are_matrices_of_their_own() -> None:
    given = {
        "models": [TINY],
        "recipes": ["fp16", "8da4w:32", "8da4w:64"],
        "targets": ["cpu", "vulkan"],
        "exclude": [{"recipes": "8da4w*", "targets": ["vulkan", "nothing"]}],
        "include": [{"recipes": ["fp16"], "prompts": [8, 256]}],
    }
    assert labels(given) == [
        "tiny-llama cpu fp16 256+64",
        "tiny-llama vulkan fp16 256+64",
        "tiny-llama cpu 8da4w:32 256+64",
        "tiny-llama cpu 8da4w:64 256+64",
        "tiny-llama cpu fp16 8+64",
        "tiny-llama vulkan fp16 8+64",
    ]  # what an include repeats is there once


def test_vision_models_have_no_prompts_and_models_may_have_axes_of_their_own() -> None:
    given = {
        "models": [TINY, {"source": "mv3", "weights": "random", "recipes": ["fp32", "int8"]}],
        "recipes": ["fp16"],
        "prompts": [8, 16],
        "peers": ["executorch"],
    }
    assert labels(given) == [
        "tiny-llama cpu fp16 8+64",
        "tiny-llama cpu fp16 16+64",
        "tiny-llama executorch 8+64",
        "tiny-llama executorch 16+64",
        "mobilenet_v3_small cpu fp32",
        "mobilenet_v3_small cpu int8",
        "mobilenet_v3_small executorch fp32",
        "mobilenet_v3_small executorch int8",
    ]
    vision = cells_of(read_experiment(given))[-1].model
    assert vision.source == "torchvision:mobilenet_v3_small" and vision.is_vision
    assert vision.flags == ("--random-weights",)


def test_a_file_is_read_with_paths_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("words")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "mine.yaml").write_text(
        "models: [{source: checkpoint, name: mine, context: 512}]\n"
        "recipes: [{name: careful, recipe: 8da4w, calibrate: words.txt, embedding: '8,0'}]\n"
        "prompts: [{file: words.txt, new_tokens: 4}]\n"
        "quality: {text: words.txt, limit: 10}\n"
        "cool_down: {seconds: 1, temperature: 2, at_most: 60}\n"
        "store: kept\n"
    )
    found = read_experiment(tmp_path / "mine.yaml")
    [cell] = cells_of(found)
    words = str((tmp_path / "words.txt").resolve())
    assert found.name == "mine" and cell.label == "mine cpu careful words.txt+4"
    assert cell.model.source == str((tmp_path / "checkpoint").resolve())
    assert cell.model.options == {"context": 512}
    assert cell.recipe.options["calibrate"] == words
    assert cell.prompt == Prompt(256, 4, words)
    assert found.quality == {"text": words, "limit": 10}
    assert found.cool_down == CoolDown(1.0, 2.0, 60.0)
    assert Sweep(found, "results").store == str(tmp_path / "kept")
    assert Sweep(found, "results", "s3://x/y").store == "s3://x/y"
    assert Sweep(found, "results", "here").store == str(Path("here").absolute())
    assert Sweep(replace(found, store=None), tmp_path / "r").store == str(tmp_path / "r/artefacts")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "names no models"),
        ({"modles": [TINY]}, "unknown key 'modles'. Did you mean 'modes' or 'models'?"),
        ({"models": [TINY], "recipe": ["fp16"]}, "unknown key 'recipe'"),
        ({"models": [{"name": "x"}]}, "must be a name or have a source"),
        ({"models": [TINY], "recipes": ["8da4w:big"]}, "is no recipe"),
        ({"models": [TINY], "recipes": [{"recipes": "fp16"}]}, "unknown key 'recipes'"),
        ({"models": [TINY], "modes": ["fast"]}, "there is no mode 'fast'"),
        ({"models": [TINY], "prompts": [0]}, "tokens in the experiment must be a whole number"),
        ({"models": [TINY], "runs": "many"}, "runs in the experiment must be a whole number"),
        ({"models": [TINY], "exclude": ["fp16"]}, "exclude in the experiment must hold axes"),
        ({"models": [TINY], "include": [{"recipe": []}]}, "unknown key 'recipe'"),
        ({"models": [TINY], "quality": {"limit": 3}}, "names no text and no task"),
        ({"models": [TINY], "speed": False}, "measures nothing"),
        ({"models": [TINY], "cool_down": {"second": 3}}, "unknown key 'second'"),
        ({"models": [TINY], "speed": "no"}, "speed in the experiment must be true or false"),
        (
            {"models": [TINY], "export": {"context": "many"}},
            "context in the experiment must be int",
        ),
        ({"models": [TINY], "quality": {"text": "x", "limit": "all"}}, "limit in the experiment"),
        ({"models": [TINY], "quality": {"text": 5}}, "text in the experiment must be a text"),
        ({"models": [TINY], "quality": {"tasks": [5]}}, "tasks in the experiment must be a text"),
        (
            {"models": [{"source": TINY, "name": "a"}, {"source": "tiny-qwen3", "name": "a"}]},
            "two different models in the experiment are called a",
        ),
        (
            {"models": [TINY], "include": [{"models": [{"source": TINY, "context": 96}]}]},
            "two different models in the experiment are called tiny-llama",
        ),
        (
            {"models": [TINY], "export": {"target": "vulkan"}},
            r"target in the experiment is an axis of the matrix. Write targets: \[vulkan\]",
        ),
        ({"models": [{"source": TINY, "mode": "kv"}]}, r"Write modes: \[kv\]"),
        ({"models": [TINY], "export": {"recipe": "fp16"}}, r"Write recipes: \[fp16\]"),
        ({"models": [{"source": TINY, "name": "a\nb"}]}, "must be a text of one line"),
        ({"models": [TINY], "name": ["a"]}, "name in the experiment must be a text of one line"),
        (
            {"models": [TINY], "recipes": ["fp16", {"name": "fp16", "recipe": "fp32"}]},
            "two different recipes in the experiment are called fp16",
        ),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_experiment(given)


def test_phases_are_known_before_anything_is_exported() -> None:
    with pytest.raises(SatchelError, match="there is no phase 'chip'"):
        read_experiment({"models": [TINY], "quality": {"text": "x", "phases": ["fp", "chip"]}})


def test_a_name_of_the_matrix_stands_for_what_it_names() -> None:
    given = {
        "models": [{"source": TINY, "name": "small", "context": 96, "recipes": ["careful"]}],
        "recipes": [{"name": "careful", "recipe": "8da4w", "group_size": 64}],
        "include": [{"models": ["small"], "threads": [1]}],
    }
    first, again = cells_of(read_experiment(given))
    assert first.model == again.model and again.threads == 1
    assert first.recipe == again.recipe and first.recipe.options["group_size"] == 64


def test_what_an_include_names_counts_for_models_with_axes_of_their_own() -> None:
    given = {
        "models": [TINY, {"source": "tiny-qwen3", "name": "own", "recipes": ["fp32"]}],
        "recipes": ["fp16"],
        "include": [
            {"models": ["own"], "recipes": ["8a8w"]},
            {"threads": [2]},  # all models, each with its recipes
            {"models": [{"source": "tiny-mine", "recipes": ["fp32"]}], "recipes": ["8a8w"]},
        ],
    }
    assert labels(given) == [
        "tiny-llama cpu fp16 256+64",
        "own cpu fp32 256+64",
        "own cpu 8a8w 256+64",
        "tiny-llama cpu fp16 256+64 2 threads",
        "own cpu fp32 256+64 2 threads",
        "tiny-mine cpu fp32 256+64",
    ]


def test_an_exclude_that_matches_nothing_is_told() -> None:
    given = {"models": [TINY], "exclude": [{"recipes": ["fb16", "fb32"], "targets": "cpu"}]}
    with pytest.warns(Remark, match=r"exclude {recipes: fb16\|fb32, targets: cpu} matches no cell"):
        assert len(labels(given)) == 1


def test_a_limit_that_would_have_no_effect_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"models: ['{TINY}']\n")
    call = ["sweep", str(file), "-o", str(tmp_path / "results"), "--memory", "8G"]
    assert main(call) == 2
    assert "on Ray. Add --ray" in capsys.readouterr().err
    assert main([*call, "--ray", "head:10001"]) == 2
    assert "started here" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
    with pytest.raises(UsageError, match="Add ray;"):
        satchel.sweep({"models": [TINY]}, tmp_path / "results", memory=8)


def test_a_part_that_is_not_there_is_told() -> None:
    read = read_experiment({"models": [TINY], "recipes": ["fp16"]})
    with pytest.warns(Remark, match=r"--only models=tinny matches no cell"):
        cells_of(replace(read, only={"models": ["tiny*", "tinny"], "peers": [""]}))


def test_paths_of_a_home_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = tmp_path / "te xt é.txt"
    text.write_text("words")
    given = {"models": [TINY], "quality": {"text": "~/te xt é.txt"}}
    assert read_experiment(given).quality["text"] == str(text)


def test_a_part_of_the_matrix_may_be_chosen() -> None:
    given = {"models": [TINY, "random:tiny-qwen3"], "recipes": ["fp16", "fp32"], "peers": ["torch"]}
    chosen = replace(read_experiment(given), only={"models": ["*-qwen*"], "targets": ["cpu"]})
    assert [c.label for c in cells_of(chosen)] == [
        "tiny-qwen3 cpu fp16 256+64",
        "tiny-qwen3 cpu fp32 256+64",
    ]
    assert only("target=cpu,vulkan") == ("targets", ["cpu", "vulkan"])
    with pytest.raises(ArgumentTypeError, match="axes are models"):
        only("chips=cpu")


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml")))
def test_the_ready_experiments_are_sound(file: Path) -> None:
    experiment = read_experiment(file)
    assert experiment.name == file.stem
    assert len(cells_of(experiment)) > 2


def test_all_cells_may_not_be_excluded() -> None:
    with pytest.raises(ConfigError, match="every cell is excluded"):
        labels({"models": [TINY], "exclude": [{"targets": "*"}]})
