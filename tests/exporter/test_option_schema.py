"""One schema of options: the dataclass, the command line, YAML files and satchel.export agree."""

from __future__ import annotations

import argparse
import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

import satchel
from satchel.backends import target_options
from satchel.cli.arguments import add_export_options, export_choices
from satchel.cli.main import main
from satchel.errors import ConfigError, RecipeError
from satchel.exporter import ExportOptions, entry
from satchel.exporter.module_options import ModuleOptions
from satchel.exporter.options_file import all_options, read_options_file
from satchel.options import flag_of, options_of
from support.tiny_llm import write_tiny_llm

# What exports take from Python that is no option of theirs.
CALL = {"overwrite", "threads", "progress"}
MODULE_CALL = CALL | {"calibration", "kwargs", "dynamic_shapes", "name"}


def keywords() -> list[set[str]]:
    """The arguments of the two forms of satchel.export that have to be named."""
    tree = ast.parse(Path(inspect.getsourcefile(entry) or "").read_text())
    forms = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "export" and node.decorator_list
    ]
    return [{argument.arg for argument in form.args.kwonlyargs} for form in forms]


def test_python_has_all_options() -> None:
    checkpoint, module = keywords()
    assert checkpoint == {field.name for field in fields(ExportOptions)} | CALL
    assert module == {field.name for field in fields(ModuleOptions)} | MODULE_CALL
    assert all("option" in field.metadata for field in fields(ExportOptions))


def test_the_command_line_has_all_options() -> None:
    parser = argparse.ArgumentParser()
    add_export_options(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    options = all_options().values()
    others = {f"--{name}" for field in options for name in field.metadata["option"].also}
    assert flags == {flag_of(field) for field in options} | others | {"-h", "--help", "--config"}
    assert "--max-seq-len" in others
    assert {"--preq-mode", "--lora-rank", "--num-sharding", "--kit", "--least-snr"} <= flags


VALUES = {
    "recipe": ("16a4w", "16a4w"),
    "embedding": ("[8, 0]", (8, 0)),
    "preq_embedding": ("8,0", (8, 0)),
    "overrides": ("{'layers.0.*': 16a8w}", {"layers.0.*": "16a8w"}),
    "adapters": ("[fr=there]", {"fr": "there"}),
    "lora": ("[a, b]", ("a", "b")),
    "metadata": ("{get_bos_id: 1}", {"get_bos_id": 1}),
    "rotate": ("true", True),
    "least_snr": ("12.5", 12.5),
    "num_sharding": ("3", 3),
    "kit": ("folder", "folder"),
    "target": ("[cpu, 'qnn:SM8750']", "cpu,qnn:SM8750"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_yaml_file_has_all_options(name: str, tmp_path: Path) -> None:
    text, value = VALUES[name]
    (tmp_path / "o.yaml").write_text(f"{name.replace('_', '-')}: {text}\n")
    assert read_options_file(tmp_path / "o.yaml") == {name: value}


def test_flags_add_to_a_file_or_override_it(tmp_path: Path) -> None:
    config = tmp_path / "o.yaml"
    config.write_text("lora: a\noverrides: {x: fp16, y: fp16}\ncontext: 10\nnum_sharding: 2\n")
    parser = argparse.ArgumentParser()
    parser.add_argument("source", nargs="?")
    parser.add_argument("--output")
    add_export_options(parser)
    flags = ["--lora", "b", "--override", "y=fp32", "--context", "20", "--target", "qnn:SM8750"]
    choices = export_choices(parser.parse_args(["--config", str(config), *flags]))
    (target,) = choices.pop("target")
    assert choices == {"lora": ("a", "b"), "overrides": {"x": "fp16", "y": "fp32"}, "context": 20}
    assert target.name == "qnn:SM8750" and target.num_sharding == 2


def test_options_of_targets_are_theirs_alone() -> None:
    own = {field.name for listed in target_options().values() for field in listed}
    assert {"num_sharding", "kit"} <= own
    assert not own & {field.name for field in options_of(ExportOptions)}
    with pytest.raises(ConfigError, match="kit is for coreml or qnn, and the target is cpu"):
        satchel.find_target("cpu", kit="here")


def test_errors_advise_what_the_caller_can_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    with pytest.raises(RecipeError) as caught:
        satchel.export(checkpoint, target="qnn:SM8450", kv_bits=16)
    assert str(caught.value).endswith("Use kv_bits 8, or leave it out.")
    command = ["export", str(checkpoint), "--target", "qnn:SM8450", "--kv-bits", "16"]
    assert main(command) == 1
    assert "Use --kv-bits 8, or leave it out." in capsys.readouterr().err


def test_preq_options_reach_the_export(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a checkpoint of Meta's.*Leave out preq_mode"):
        satchel.export(write_tiny_llm(tmp_path / "tiny"), preq_mode="8da4w", lora_rank=16)
    with pytest.raises(TypeError, match="nonsense"):
        satchel.export(tmp_path / "tiny", nonsense=1)  # type: ignore[call-overload]
