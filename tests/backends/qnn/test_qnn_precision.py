"""Precision by layer, larger blocks and online rotations on the NPU, against transformers."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

import satchel
from exporter.test_export_prequantized_meta import hadamard, write_quantized
from satchel.backends.qnn.hadamard import hadamard_codes
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.weights import ProgramWeights
from satchel.graph.ir import Node
from satchel.llm.session import Session
from satchel.runtime.program import Program
from support.arrays import integers
from support.tiny_models import logits_of, tiny_model, write_checkpoint

OPTIONS: dict[str, Any] = {"target": "qnn:SM8750", "mode": "kv", "context": 32}
PROMPT = integers(11, below=250).tolist()
DOWN = "layers.*.mlp.down"


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def exported(tmp_path: Path, model: Any, **options: Any) -> tuple[Program, float]:
    """The program, and the cosine of the emulator's logits to those that transformers computes
    with the program's rounded weights, or, of a rotated program, with the model's own."""
    folder = write_checkpoint(tmp_path / "m", model)
    program = Program(satchel.export(folder, tmp_path / "m.satchel", **OPTIONS, **options))
    rounded = deepcopy(model)
    if not options.get("rotate"):
        stored = {weight["name"] for weight in program.weights}
        with torch.no_grad():
            for name, weight in rounded.named_parameters():
                if name in stored:
                    weight.copy_(torch.from_numpy(program.weight(name).copy()))
    return program, cosine(Session(program).feed(PROMPT), logits_of(rounded, np.array(PROMPT))[-1])


def layers(program: Program) -> dict[str, tuple[int, int]]:
    """The bits that each layer reads and makes, by its weight."""
    prepared = PreparedProgram.of(program)
    found = {}
    for node in prepared.lowered["kv_forward"].npu.nodes:
        if node.op == "linear" and node.inputs[0] and node.inputs[1]:
            read, made = node.inputs[0].name, node.outputs[0].name
            bits = prepared.encodings[read].bits, prepared.encodings[made].bits
            found[node.inputs[1].name.removeprefix("model.").removesuffix("_proj.weight")] = bits
    return found


def _bits(prepared: PreparedProgram, node: Node) -> tuple[int, ...]:
    return tuple(prepared.encodings[v.name].bits for v in node.inputs if v is not None)


def test_some_layers_of_16_bits_in_8(tmp_path: Path) -> None:
    program, close = exported(tmp_path, tiny_model("llama"), overrides={DOWN: "8a8w"})
    found = layers(program)
    assert found["layers.0.mlp.down"] == found["layers.1.mlp.down"] == (8, 8)
    assert found["layers.0.mlp.up"] == found["layers.1.self_attn.q"] == (16, 16)
    assert close > 0.99
    # The cache is multiplied in its own 8 bits: chips before v73 have no products of two
    # activations of 16.
    prepared = PreparedProgram.of(program)
    products = [n for n in prepared.lowered["kv_forward"].npu.nodes if n.op == "matmul"]
    assert [_bits(prepared, node) for node in products] == [(16, 8)] * 4


def test_some_layers_of_8_bits_in_16(tmp_path: Path) -> None:
    """With what leads to them."""
    overrides = {DOWN: "16a8w", "lm_head": "16a8w"}
    program, close = exported(tmp_path, tiny_model("llama"), recipe="8a8w", overrides=overrides)
    found = layers(program)
    assert found["layers.0.mlp.down"] == found["lm_head.weight"] == (16, 16)
    assert found["layers.1.mlp.up"] == (16, 16)
    assert found["layers.1.self_attn.q"] == (8, 8)
    assert close > 0.95


@pytest.mark.all_rows  # a layer of such blocks is among the ops' rows
@pytest.mark.parametrize("block", [128, 256])
def test_large_blocks(tmp_path: Path, block: int) -> None:
    model = tiny_model("llama", hidden_size=256, intermediate_size=512)
    program, close = exported(tmp_path, model, group_size=block)
    weights = ProgramWeights(program)
    stored = weights.matrix("model.layers.0.mlp.down_proj.weight")
    assert stored.bits == 4 and stored.scales.shape == (256, 512 // block)
    assert close > 0.99


def test_rotations_within_the_graph(tmp_path: Path) -> None:
    """Outliers in what the last layer of an MLP reads, which 8 bits of activations suffer from."""
    model = tiny_model("llama", intermediate_size=256)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.up_proj.weight[7] *= 60
            layer.mlp.down_proj.weight[:, 7] /= 60
    options = {"recipe": "16a8w", "overrides": {DOWN: "8a8w"}, "rotate": True}
    folded = exported(tmp_path / "folded", model, **options)[1]
    program, online = exported(tmp_path / "online", model, rotate_online=True, **options)
    transforms = [name for name in layers(program) if name.startswith("hadamard.")]
    # Of 256 as two of 16; of the heads' 16, where queries meet keys.
    assert set(transforms) == {"hadamard.16"}
    assert online > 0.98 and online > folded


def test_spinquants_codes_are_kept(tmp_path: Path) -> None:
    """Meta's checkpoints rotate what the last layer of an MLP reads when they run."""
    model = tiny_model("llama", intermediate_size=128)
    (tmp_path / "m").mkdir()
    write_quantized(tmp_path / "m", model, lora=False, arguments={"spinquant": True})
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if "down_proj" in name:
                weight.copy_(weight @ hadamard(128))
    path = satchel.export(tmp_path / "m", tmp_path / "m.satchel", recipe="keep", **OPTIONS)
    program = Program(path)
    assert ProgramWeights(program).matrix("model.layers.0.mlp.down_proj.weight").bits == 4
    got = Session(program).feed(PROMPT)
    assert cosine(got, logits_of(model, np.array(PROMPT))[-1]) > 0.998


def test_a_transform_is_a_product_of_smaller_ones() -> None:
    codes, scales = hadamard_codes("hadamard.128") or (None, None)
    np.testing.assert_allclose(codes * scales, hadamard(128).numpy(), rtol=1e-6)
