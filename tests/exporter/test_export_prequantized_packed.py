"""GPTQ and AWQ checkpoints as they are: the numbers of their codes, and transformers' logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import satchel
from checkpoints.packed_files import write_packed
from models.family_check import CONTEXT, TOKENS, both_ways
from satchel.checkpoints import open_checkpoint
from satchel.errors import CheckpointError, RecipeError
from satchel.exporter import ExportOptions, prepare_export
from satchel.exporter.cached import program_for
from support.tiny_models import logits_of, tiny_model

OPTIONS: dict[str, Any] = {"kv_bits": 32, "context": CONTEXT, "prefill_ar_len": 32}
TOLERANCE = 2e-3  # 16-bit activations in two layers
LAYER = "model.layers.0.self_attn.k_proj"
# method, form, encoding and group of the columns of an input of 64
FORMS: list[tuple[str, dict[str, Any], str, int]] = [
    ("gptq", {"group": 32, "sym": True}, "matrix_q4", 32),
    ("gptq", {"group": 32, "sym": False}, "matrix_q4_offset", 32),
    ("gptq", {"group": -1, "sym": True}, "matrix_q4", 64),
    ("gptq", {"group": -1, "sym": False}, "matrix_q4_offset", 64),
    ("gptq", {"sym": False, "checkpoint_format": "gptq_v2"}, "matrix_q4_offset", 32),
    ("gptq", {"sym": True, "scattered": True}, "matrix_q4", 32),
    ("gptq", {"sym": False, "scattered": True}, "matrix_q4_offset", 32),
    ("gptq", {"bits": 8, "sym": True}, "matrix_q8", 32),
    ("gptq", {"bits": 8, "sym": False}, "matrix_q8_offset", 32),
    ("awq", {"group": 32}, "matrix_q4_offset", 32),
    ("awq", {"group": 16}, "matrix_q4_offset", 16),
]


@pytest.mark.parametrize(("method", "form", "encoding", "group"), FORMS)
def test_numbers_are_those_of_the_codes(
    tmp_path: Path, method: str, form: dict[str, Any], encoding: str, group: int
) -> None:
    model = tiny_model("llama")
    folder = write_packed(tmp_path / "m", model, method, **form)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.quantized_by == method
        for name, parameter in model.named_parameters():
            wanted = parameter.detach().numpy()
            np.testing.assert_array_equal(checkpoint.read(name), wanted, name)
            np.testing.assert_array_equal(checkpoint.read(name, slice(3, 13)), wanted[3:13])
    program = satchel.export(folder, tmp_path / "m.satchel", recipe="keep", **OPTIONS)
    weights = {w["name"]: (w["encoding"], w["group"]) for w in satchel.load(program).weights}
    assert weights[f"{LAYER}.weight"] == (encoding, group)
    assert weights["model.embed_tokens.weight"] == ("matrix_f16", 0)
    wanted = logits_of(model, TOKENS)
    ways = both_ways(program)
    for way, got in ways.items():
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE, err_msg=way)
    np.testing.assert_array_equal(ways["prefill"], ways["decode"])


def test_a_layer_s_order_is_taken_once_for_all_that_share_it(tmp_path: Path) -> None:
    model = tiny_model("llama", num_hidden_layers=1)
    folder = write_packed(tmp_path / "m", model, "gptq", scattered=True)
    tensors = load_file(folder / "model.safetensors")
    shared = tensors[f"{LAYER}.g_idx"]
    for layer in ("q_proj", "v_proj"):
        tensors[f"model.layers.0.self_attn.{layer}.g_idx"] = shared.clone()
    save_file(tensors, folder / "model.safetensors")
    job = prepare_export(folder, ExportOptions("keep"))
    taken = [node for node in job.graphs[0].nodes if node.op == "take"]
    assert len(taken) == 5  # one for q, k and v; then o, gate, up, down


def test_a_fused_layer_and_a_bias(tmp_path: Path) -> None:
    for model_type in ("phi3", "qwen2"):
        model = tiny_model(model_type, pad_token_id=0)
        folder = write_packed(tmp_path / model_type, model, "awq")
        program = satchel.export(
            folder, tmp_path / f"{model_type}.satchel", recipe="keep", **OPTIONS
        )
        wanted = logits_of(model, TOKENS)
        for way, got in both_ways(program).items():
            np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE, err_msg=way)


def test_recipes_that_would_round_again_are_refused(tmp_path: Path) -> None:
    folder = write_packed(tmp_path / "m", tiny_model("llama"), "gptq", sym=True)
    with pytest.raises(RecipeError, match=r"already quantised \(gptq\), and 8da4w would") as caught:
        prepare_export(folder, ExportOptions("8da4w"))
    assert "--recipe keep" in caught.value.advice
    assert prepare_export(folder, ExportOptions("fp16")).plan().file_size > 0


def test_a_quantised_folder_is_kept_when_it_is_simply_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    folder = write_packed(tmp_path / "m", tiny_model("llama"), "awq")
    assert satchel.load(program_for(folder)).metadata["recipe"]["name"] == "keep"


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_quantised_folder_is_kept_unless_someone_says_otherwise(
    method: str, tmp_path: Path
) -> None:
    folder = write_packed(tmp_path / "m", tiny_model("llama"), method)
    path = satchel.export(folder, tmp_path / "m.satchel", context=16)
    assert satchel.load(path).metadata["recipe"]["name"] == "keep"


@pytest.mark.parametrize(
    ("method", "file"), [("gptq", "quantize_config.json"), ("awq", "quant_config.json")]
)
def test_what_older_tools_wrote_beside_the_configuration(
    method: str, file: str, tmp_path: Path
) -> None:
    folder = write_packed(tmp_path / "m", tiny_model("llama"), method)
    with open_checkpoint(folder) as checkpoint:
        layers = {name: t.shape for name, t in checkpoint.tensors.items()}
    config = json.loads((folder / "config.json").read_text())
    said = config.pop("quantization_config")
    del said["quant_method"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / file).write_text(json.dumps(said))
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.quantized_by == method
        assert {name: t.shape for name, t in checkpoint.tensors.items()} == layers


@pytest.mark.parametrize("field", ["quantization", "quantization_config"])
def test_a_folder_of_mlx_is_told_as_what_it_is(field: str, tmp_path: Path) -> None:
    """MLX writes a field of its own, and newer versions the usual one too, without a method."""
    folder = write_packed(tmp_path / "m", tiny_model("llama"), "gptq")
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = config[field] = {"group_size": 64, "bits": 4}
    if field == "quantization":
        del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"already quantised \(mlx\)"):
        open_checkpoint(folder)


Change = dict[str, Any]
BAD_CONFIGS: list[tuple[str, Change, str]] = [
    ("gptq", {"bits": 3}, "to 3 bits, and only 4 and 8 are read"),
    ("awq", {"bits": 8}, "to 8 bits, and only 4 are read"),
    ("gptq", {"group_size": 12}, "group size 12, which is not a multiple of 8"),
    ("gptq", {"checkpoint_format": "marlin"}, "GPTQ's layout 'marlin'"),
    ("awq", {"version": "gemv"}, "AWQ's layout 'gemv'"),
    ("gptq", {"group_size": 64}, "do not fit together"),
    ("gptq", {"quant_method": "bitsandbytes"}, r"already quantised \(bitsandbytes\)"),
]


@pytest.mark.parametrize(("method", "change", "message"), BAD_CONFIGS)
def test_configurations_that_are_not_read(
    tmp_path: Path, method: str, change: Change, message: str
) -> None:
    folder = write_packed(tmp_path / "m", tiny_model("llama", num_hidden_layers=1), method)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def _without(tensors: dict[str, torch.Tensor], part: str) -> None:
    del tensors[f"{LAYER}.{part}"]


def _with(part: str, value: Any) -> Any:
    return lambda tensors: tensors.update({f"{LAYER}.{part}": value(tensors)})


BAD_TENSORS: dict[str, tuple[Any, str]] = {
    "no scales": (lambda t: _without(t, "scales"), "lacks .*k_proj.scales"),
    "no zeros": (lambda t: _without(t, "qzeros"), "lacks .*k_proj.qzeros"),
    "no g_idx": (lambda t: _without(t, "g_idx"), "g_idx, which desc_act needs"),
    "another part": (_with("extra", lambda t: torch.zeros(1)), "k_proj.extra has no place"),
    "short g_idx": (
        _with("g_idx", lambda t: torch.zeros(3, dtype=torch.int32)),
        "not one group number for each of 64 inputs",
    ),
    "uneven groups": (
        _with("g_idx", lambda t: torch.zeros(64, dtype=torch.int32)),
        "groups that are not of 32 inputs",
    ),
    "float codes": (
        _with("qweight", lambda t: t[f"{LAYER}.qweight"].float()),
        "do not fit together",
    ),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_damaged_layers(tmp_path: Path, name: str) -> None:
    change, message = BAD_TENSORS[name]
    model = tiny_model("llama", num_hidden_layers=1)
    folder = write_packed(tmp_path / "m", model, "gptq", scattered=True)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_zero_points_that_are_not_symmetric(tmp_path: Path) -> None:
    folder = write_packed(tmp_path / "m", tiny_model("llama"), "gptq", sym=False)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["sym"] = True
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="zero points of .* are not all 8"):
        satchel.export(folder, tmp_path / "m.satchel", recipe="keep")
    assert not (tmp_path / "m.satchel").exists()


def test_scales_that_16_bits_do_not_hold(tmp_path: Path) -> None:
    folder = write_packed(tmp_path / "m", tiny_model("llama"), "awq")
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{LAYER}.scales"] = tensors[f"{LAYER}.scales"].float() * 1.0001
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="scales of .* are not exact in 16 bits"):
        satchel.export(folder, tmp_path / "m.satchel", recipe="keep")
