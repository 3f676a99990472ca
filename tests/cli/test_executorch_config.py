"""Configurations of ExecuTorch's export_llm: YAML groups and ++group.key=value."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from satchel.cli.arguments import export_choices
from satchel.cli.main import main, parse_arguments
from satchel.errors import ConfigError
from satchel.exporter.executorch_config import override, split_overrides, translate
from satchel.exporter.options_file import read_options_file
from satchel.runtime.program import Program

Capture = pytest.CaptureFixture[str]

# The file that the paper's export of Qwen3 begins with, and Execu_Chat's of the 4B model.
QWEN3 = """
base:
  metadata: '{"get_bos_id": 5, "get_eos_ids":[7]}'
model:
  use_kv_cache: True
  use_sdpa_with_kv_cache: True
  dtype_override: fp32
quantization:
  qmode: 8da4w
export:
  max_seq_length: 64
  max_context_length: 128
backend:
  xnnpack:
    enabled: True
    extended_ops: True
"""


def test_the_papers_command_exports(
    capsys: Capture, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C.6.1 of the artifact appendix, with a small checkpoint in its place."""
    monkeypatch.chdir(tmp_path)
    Path("qwen3.yaml").write_text(QWEN3)
    Path("meta").mkdir()
    shutil.copy(checkpoint / "model.safetensors", "meta/weights.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(checkpoint / name, "meta")
    command = [
        "export",
        "--config",
        "qwen3.yaml",
        "++base.model_class=qwen3_0_6b",
        "++base.checkpoint=meta/weights.safetensors",
        f"++base.params={checkpoint / 'config.json'}",
        "++quantization.group_size=32",
        "++quantization.embedding_quantize='4,32'",
        "++export.max_seq_length=100",
        "++export.max_context_length=100",
        "++export.output_name=artifacts/qwen3_0_6b_xnnpack_8da4w_g32.pte",
    ]
    Path("artifacts").mkdir()
    assert main(command) == 0
    metadata = Program("artifacts/qwen3_0_6b_xnnpack_8da4w_g32.satchel").metadata
    assert metadata["name"] == "qwen3_0_6b" and metadata["context"] == 100
    assert metadata["recipe"]["group_size"] == 32 and metadata["recipe"]["embedding"] == [4, 32]
    assert metadata["tokenizer"]["bos_id"] == 5 and metadata["tokenizer"]["eos_ids"] == [7]
    said = capsys.readouterr().err
    for line in (
        "base.model_class: qwen3_0_6b became source: qwen3_0_6b",
        "quantization.qmode: 8da4w became recipe: 8da4w",
        "quantization.embedding_quantize: 4,32 became embedding: 4,32",
        "backend.xnnpack.enabled: true became target: cpu",
        "export.max_context_length: 100 became context: 100",
        "export.output_name: artifacts/qwen3_0_6b_xnnpack_8da4w_g32.pte became output: "
        "artifacts/qwen3_0_6b_xnnpack_8da4w_g32.satchel",
    ):
        assert line in said
    assert "not needed here: model.dtype_override, export.max_seq_length" in said


def test_flags_count_more_than_the_file(checkpoint: Path, tmp_path: Path) -> None:
    config, output = tmp_path / "llama.yaml", tmp_path / "x.satchel"
    config.write_text(QWEN3)
    flags = ["--config", str(config), "--context", "50", "--recipe", "fp16", "-o", str(output)]
    assert main(["export", str(checkpoint), *flags]) == 0
    metadata = Program(output).metadata
    assert metadata["context"] == 50 and metadata["recipe"]["name"] == "fp16"
    assert metadata["tokenizer"]["eos_ids"] == [7]


@pytest.mark.parametrize(
    ("flags", "named", "ours"),
    [
        ([], "a/b.pte", "a/b.satchel"),
        (["--format", "pte"], "a/b.pte", "a/b.pte"),
        (["--target", "coreml"], "model", "model.mlpackage"),
        (["--format", "pte", "-o", "mine.pte"], "a/b.pte", "mine.pte"),
    ],
)
def test_the_output_is_named_after_what_is_written(
    flags: list[str], named: str, ours: str, capsys: Capture
) -> None:
    words = ["export", "tiny", *flags, f"++export.output_name={named}"]
    assert export_choices(parse_arguments(words))["output"] == ours
    said = f"export.output_name: {named} became output: {ours}\n"
    assert capsys.readouterr().err == ("" if "-o" in flags else said)


def test_a_name_of_another_kind_is_refused(checkpoint: Path, capsys: Capture) -> None:
    assert main(["export", str(checkpoint), "-o", "x.pte", "--plan"]) == 1
    said = capsys.readouterr().err
    assert "x.pte names a file of the target executorch" in said
    assert "--target executorch" in said and ".satchel" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("export --decoder_model qwen3-0_6b --compile_only", "satchel export NAME"),
        ("export mv3 --delegate --quantize", "for --delegate leave it out"),
        ("export x --vulkan", "write --target vulkan"),
        ("run --model_path=a.pte x", "satchel run FILE"),
        ("run a.satchel x --tokenizer_path t", "the file holds it"),
        ("export x --nonsense", "unrecognized arguments: --nonsense. satchel --help"),
        ("export x -kv -vulkan -d fp32", "for -kv leave it out: it is always so; for -vulkan"),
        ("export x -a out -b build-android -m SM8750", "for -m the model is the first word, and"),
        ("export x -qat -lora 16", "for -lora write --lora_rank N"),
        ("export x --task hellaswag", "write --calibrate task:hellaswag, or satchel eval FILE"),
        ("run x -m y.bin -t tok.json --ar_len 32", "for -m the file is the first word"),
        ("export x --prompt text", 'write --calibrate "prompt:TEXT"'),
        ("export ++bse.checkpoint=x", "there is no group 'bse'; did you mean base?"),
        ("export x ++export.output_name", "has no value: write ++export.output_name=VALUE"),
        ("export ~quantization.qmode", "write ++quantization.qmode=null"),
    ],
)
def test_flags_of_the_guides_that_are_none_here(words: str, said: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(words.split())
    assert said in capsys.readouterr().err


PRINTED = """
base:
metadata: '{"get_bos_id": 1, "get_eos_ids":[2]}'
model:
use_kv_cache: True
dtype_override: fp32
quantization:
qmode: 8da4w
export:
max_seq_length: 64
backend:
xnnpack:
enabled: True
extended_ops: True
"""


def test_lines_that_lost_their_indentation(tmp_path: Path) -> None:
    """As Execu_Chat's page prints its file."""
    path = tmp_path / "qwen3_4b8da4w.yaml"
    path.write_text(PRINTED)
    assert read_options_file(path) == {
        "metadata": {"get_bos_id": 1, "get_eos_ids": [2]},
        "recipe": "8da4w",
        "context": 64,
        "target": "cpu",
    }
    path.write_text("model:\nbackend:\nrecipe: fp16\n")
    assert read_options_file(path) == {"recipe": "fp16"}
    path.write_text("backend:\nxnnpack:\nenabled: False\nvulkan:\nforce_fp16: True\n")
    with pytest.raises(ConfigError, match="several backends and no indentation"):
        read_options_file(path)


def test_overrides_need_no_signs() -> None:
    words = ["export", "base.checkpoint=a.pth", "+export.max_seq_length=64", "x=y"]
    assert split_overrides(words) == (["export", "x=y"], words[1:3])


def test_overrides_need_no_file(checkpoint: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ["+quantization.qmode=torchao:8da4w", f"+export.output_dir={tmp_path / 'out'}"]
    assert main(["export", words[0], str(checkpoint), words[1], "--context", "64"]) == 0
    assert [p.name for p in (tmp_path / "out").iterdir()] == [
        "tiny-llama-cpu-8da4w-g32-c64.satchel"
    ]


TRANSLATIONS = [
    ({"quantization": {"qmode": "8da4w-gptq"}}, {"recipe": "8da4w", "rounding": "gptq"}),
    ({"quantization": {"pt2e_quantize": "qnn_16a4w"}}, {"recipe": "16a4w"}),
    ({"quantization": {"qmode": "torchao:fpa4w"}}, {"recipe": "8da4w", "activation_bits": 16}),
    ({"model": {"dtype_override": "fp16"}}, {"recipe": "fp16"}),
    ({"model": {"quantize_kv_cache": True, "use_kv_cache": True}}, {"kv_bits": 8}),
    ({"backend": {"vulkan": {"enabled": True}}}, {"target": "vulkan"}),
    (
        {"backend": {"qnn": {"enabled": True, "soc_model": "SM8750", "num_sharding": 2}}},
        {"target": "qnn:SM8750", "num_sharding": 2},
    ),
    (
        {"backend": {"qnn": {"enabled": True}, "xnnpack": {"enabled": False}}},
        {"target": "qnn:SM8650"},
    ),
    ({"backend": {"coreml": {"enabled": True, "ios": 18}}}, {"target": "coreml:iOS18"}),
    (
        {"quantization": {"calibration_tasks": ["wikitext"], "calibration_limit": 1}},
        {"calibrate": "task:wikitext", "calibrate_samples": 1},
    ),
    ({"quantization": {"calibration_data": "Once"}}, {"calibrate": "prompt:Once"}),
    (
        {"base": {"preq_mode": "8da4w_output_8da8w", "preq_group_size": 32, "use_lora": 16}},
        {"preq_mode": "8da4w_output_8da8w", "preq_group_size": 32, "lora_rank": 16},
    ),
    ({"base": {"preq_group_size": 32, "use_lora": 0}}, {}),
    (
        {"base": {"lora_config": {"adapter_checkpoint": "fr/adapter.safetensors", "lora_rank": 8}}},
        {"lora": ["fr"]},
    ),
    (
        {"export": {"output_name": "a/b.pte", "output_dir": "there"}},
        {"output_name": "there/a/b.pte"},
    ),
    ({"export": {"output_name": "model"}}, {"output_name": "model"}),
    ({"debug": {"verbose": True}, "model": None}, {}),
]


@pytest.mark.parametrize(("theirs", "ours"), TRANSLATIONS)
def test_each_setting_has_its_counterpart(theirs: dict[str, object], ours: object) -> None:
    assert translate(theirs, "x.yaml").choices == ours


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"base": {"modelclass": "x"}}, "unknown setting 'base.modelclass'.*base.model_class"),
        ({"quantization": {"qmode": "2w"}}, "qmode 2w has no counterpart"),
        ({"quantization": {"calibration_tasks": ["a", "b"]}}, "has 2 tasks"),
        ({"model": {"local_global_attention": [0, 16]}}, "has no place here"),
        ({"export": {"export_only": True}}, "has no place here.*--plan"),
        ({"base": {"metadata": "{get"}}, "is not JSON"),
    ],
)
def test_what_has_none_is_refused(theirs: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate(theirs, "x.yaml")
    assert re.search(said, caught.value.on_command_line)


def test_words_are_told_apart() -> None:
    words = ["export", "++base.params=a=b", "--prompt", "++x", "+export.output_name=y"]
    assert split_overrides(words) == (
        ["export", "--prompt", "++x"],
        ["++base.params=a=b", "+export.output_name=y"],
    )
    file = {"base": {"params": "old", "checkpoint": "c"}}
    changed = override(file, ["++base.params=a=b", "++backend.qnn.enabled=true"], json_or_text)
    assert changed == {
        "base": {"params": "a=b", "checkpoint": "c"},
        "backend": {"qnn": {"enabled": True}},
    }
    assert file["base"]["params"] == "old"


def json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("flag", ["--prefill_ar_len", "--prefill-ar-len"])
def test_flags_may_be_spelt_as_theirs(checkpoint: Path, tmp_path: Path, flag: str) -> None:
    output = tmp_path / "x.satchel"
    theirs = ["--model_mode", "hybrid", "--max_seq_len", "96", "--embedding-quantize", "4,32"]
    assert main(["export", str(checkpoint), flag, "32", *theirs, "-o", str(output)]) == 0
    metadata = Program(output).metadata
    assert metadata["prefill_ar_len"] == 32 and metadata["context"] == 96
    assert metadata["recipe"]["embedding"] == [4, 32]
