"""Mixtures of experts: every recipe, every form of a checkpoint, and what is read of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import satchel
from models.family_check import CONTEXT, TOKENS, prefill_then_decode
from models.model_rows import LOCAL_EXPERTS, QWEN3_MOE
from models.quantized_check import QuantizedPair
from satchel.errors import CheckpointError, ConfigError
from satchel.models import build_model
from support.compare import relative_difference
from support.tiny_models import BASE, logits_of, tiny_model, write_checkpoint

SIZES: dict[str, Any] = {"context": CONTEXT, "prefill_ar_len": 32}
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    model = tiny_model("qwen3_moe", **QWEN3_MOE, norm_topk_prob=True)
    return write_checkpoint(tmp_path_factory.mktemp("qwen3_moe"), model), model


@pytest.mark.parametrize("recipe", ["fp16", "16a8w", "8da4w"])
def test_logits_are_transformers_with_the_stored_weights(
    qwen: tuple[Path, Any], tmp_path: Path, recipe: str
) -> None:
    """Activations have 16 bits at least, so that no token is sent to another expert."""
    folder, _ = qwen
    bits = {} if recipe == "fp16" else {"activation_bits": 16}
    path = satchel.export(
        folder, tmp_path / "m.satchel", recipe=recipe, kv_bits=32, **bits, **SIZES
    )
    program = satchel.load(path)
    model = tiny_model("qwen3_moe", **QWEN3_MOE, norm_topk_prob=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            block, is_expert, part = name.partition(".experts.")
            parts = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
            keys = [f"{block}.experts.{p}.weight" for p in parts] if is_expert else [name]
            stored = [torch.tensor(program.weight(key)) for key in keys]
            if is_expert:
                stored = [s.reshape(len(parameter), -1, s.shape[1]) for s in stored]
            parameter.copy_(torch.cat(stored, dim=-2) if is_expert else stored[0])
    got = prefill_then_decode(program)
    assert relative_difference(got, logits_of(model, TOKENS)) < 2e-3


@pytest.mark.parametrize("recipe", ["fp16", "8a8w", "16a8w", "16a4w"])
def test_programs_run_as_the_reference_does(
    qwen: tuple[Path, Any], tmp_path: Path, recipe: str
) -> None:
    pair = QuantizedPair(qwen[0], tmp_path / "m.satchel", recipe=recipe, **SIZES)
    native, reference = pair.run_all(TOKENS[:36], prefill=30)
    assert relative_difference(native, reference) <= 1e-3


@pytest.mark.parametrize("recipe", ["8da4w", "16a8w"])
def test_a_token_has_the_same_bits_alone_and_in_a_block(
    qwen: tuple[Path, Any], tmp_path: Path, recipe: str
) -> None:
    program = satchel.load(satchel.export(qwen[0], tmp_path / "m.satchel", recipe=recipe, **SIZES))
    block = program.instance(threads=2).method("prefill_forward")
    alone = program.instance(threads=1).method("kv_forward")
    tokens = TOKENS[:31]
    (together,) = block.run(tokens, [0], np.arange(31, dtype=np.int32))
    one_by_one = [alone.run(tokens[at : at + 1], [at])[0] for at in range(31)]
    np.testing.assert_array_equal(together, np.concatenate(one_by_one))


def as_one_tensor(tensors: Tensors) -> Tensors:
    """Gate and up of all experts in one tensor, as transformers holds them."""
    found: dict[str, dict[int, dict[str, torch.Tensor]]] = {}
    rest = {}
    for name, tensor in tensors.items():
        block, is_expert, place = name.partition(".experts.")
        if not is_expert:
            rest[name] = tensor
            continue
        number, part = place.split(".")[:2]
        found.setdefault(block, {}).setdefault(int(number), {})[part] = tensor
    for block, experts in found.items():
        ordered = [experts[number] for number in sorted(experts)]
        gates = [torch.cat([e["gate_proj"], e["up_proj"]]) for e in ordered]
        rest[f"{block}.experts.gate_up_proj"] = torch.stack(gates)
        rest[f"{block}.experts.down_proj"] = torch.stack([e["down_proj"] for e in ordered])
    return rest


def named_as_mixtral(tensors: Tensors) -> Tensors:
    changes = {".mlp.": ".block_sparse_moe."}
    changes |= {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in changes.items():
            name = name.replace(old, new)  # noqa: PLW2901
        renamed[name] = tensor
    return renamed


@pytest.mark.parametrize("change", [as_one_tensor, named_as_mixtral])
def test_all_forms_of_a_checkpoint_give_the_same_weights(
    qwen: tuple[Path, Any], tmp_path: Path, change: Callable[[Tensors], Tensors]
) -> None:
    other = shutil.copytree(qwen[0], tmp_path / "other")
    save_file(change(load_file(qwen[0] / "model.safetensors")), other / "model.safetensors")
    digests = []
    for number, folder in enumerate((qwen[0], other)):
        path = satchel.export(folder, tmp_path / f"{number}.satchel", recipe="8da4w", **SIZES)
        digests.append({w["name"]: w["digest"] for w in satchel.load(path).weights})
    assert digests[0] == digests[1]
    assert "model.layers.0.mlp.experts.gate_proj.weight" in digests[0]


def test_only_the_chosen_experts_are_read(tmp_path: Path) -> None:
    """All others are NaN: they would show in every number that they are a part of."""
    model = tiny_model("mixtral", **LOCAL_EXPERTS)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.gate.weight.zero_()  # of equals the first are chosen
    folder = write_checkpoint(tmp_path / "mixtral", model)
    path = satchel.export(folder, tmp_path / "m.satchel", recipe="fp16", **SIZES)
    expected = prefill_then_decode(satchel.load(path))
    assert np.isfinite(expected).all() and expected.std() > 0.5
    contents = bytearray(path.read_bytes())
    for weight in satchel.load(path).weights:
        if ".experts." in weight["name"]:
            half = weight["codes_size"] // 2  # three experts of six
            start = weight["offset"] + half
            contents[start : start + half] = b"\xff" * half
    damaged = tmp_path / "damaged.satchel"
    damaged.write_bytes(contents)
    np.testing.assert_array_equal(prefill_then_decode(satchel.load(damaged)), expected)


def test_a_missing_expert_is_named(qwen: tuple[Path, Any], tmp_path: Path) -> None:
    other = shutil.copytree(qwen[0], tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    del tensors["model.layers.1.mlp.experts.2.up_proj.weight"]
    save_file(tensors, other / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no expert 2 .*layers\.1\.mlp\.experts\.up_proj"):
        satchel.export(other, tmp_path / "m.satchel")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts_per_tok": 9}, "cannot choose 9 of 6 experts"),
        ({"moe_intermediate_size": 40}, "experts of 40 rows"),
        ({"mlp_only_layers": [0.5]}, "'mlp_only_layers' must be a list"),
    ],
)
def test_configurations_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    config = {"model_type": "qwen3_moe", **BASE, **QWEN3_MOE, **changes}
    with pytest.raises(ConfigError, match=message):
        build_model(config)
