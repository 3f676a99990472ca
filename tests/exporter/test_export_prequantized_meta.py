"""Meta's checkpoints that come quantised: codes as they are, adaptors as branches beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import satchel
from checkpoints.checkpoint_files import arrays, meta_params, meta_state, write_meta
from models.family_check import CONTEXT, TOKENS, both_ways
from models.family_check import TOLERANCE as FLOAT_TOLERANCE
from satchel.checkpoints import open_checkpoint
from satchel.errors import CheckpointError, ConfigError, RecipeError
from satchel.exporter import ExportOptions, prepare_export
from support.tiny_models import logits_of, tiny_model, write_tokenizer

State = dict[str, torch.Tensor]
GROUP, RANK, LORA_SCALE = 32, 4, 2.0
TOLERANCE = 2e-3  # 16-bit activations in two layers
PREQ: dict[str, Any] = {
    "preq_mode": "8da4w_output_8da8w",
    "preq_group_size": GROUP,
    "preq_embedding": (8, 0),
    "lora_rank": RANK,
}


def quantized(weight: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes (int8) and scales (float32, exact in 16 bits) of a weight."""
    groups = weight.reshape(weight.shape[0], -1, group)
    scales = (groups.abs().amax(2) / (2 ** (bits - 1) - 0.5)).half().float()
    limit = 2 ** (bits - 1)
    codes = (groups / scales[:, :, None]).round().clamp(-limit, limit - 1)
    return codes.reshape(weight.shape).to(torch.int8), scales


def write_quantized(
    folder: Path,
    model: Any,
    *,
    lora: bool = True,
    change: Callable[[State], object] | None = None,
    squeezed: bool = False,
    arguments: dict[str, Any] | None = None,
) -> Path:
    """A checkpoint like those of Llama 3.2; the model's weights become what it stands for."""
    generator = torch.Generator().manual_seed(5)
    state: State = {}

    def store(
        name: str, values: torch.Tensor, dtype: torch.dtype, interleaved: bool = True
    ) -> None:
        plain = (
            name if interleaved else name.replace("q_proj", "o_proj").replace("k_proj", "o_proj")
        )
        (stored,) = meta_state({plain: values.float().numpy()}, model.config).values()
        (key,) = meta_state({name: np.zeros((64, 1))}, model.config)
        state[key] = stored.to(dtype)

    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if weight.dim() < 2:
                store(name, weight, torch.float32)
                continue
            layer, module = ".layers." in name, name.removesuffix(".weight")
            bits, group = (4, GROUP) if layer else (8, weight.shape[1])
            codes, scales = quantized(weight, bits, group)
            weight.copy_(codes * scales.repeat_interleave(group, dim=1))
            store(name, codes, torch.int8)
            store(f"{module}.scales", scales, torch.float32)
            if lora and layer:
                a = torch.randn(RANK, weight.shape[1], generator=generator).bfloat16() / 16
                b = torch.randn(len(weight), RANK, generator=generator).bfloat16() / 4
                store(f"{module}.adaptor.A.weight", a, torch.bfloat16, interleaved=False)
                store(f"{module}.adaptor.B.weight", b, torch.bfloat16)
                weight.add_(LORA_SCALE * (b.float() @ a.float()))
    if squeezed:
        state = {name: tensor.squeeze() for name, tensor in state.items()}
    if change:
        change(state)
    params = meta_params(model.config)
    params["quantization_args"] = {
        "scheme": "int4_weight_int8_dynamic_activation",
        "group_size": GROUP,
        **(arguments or {}),
    }
    if lora:
        params["lora_args"] = {"rank": RANK, "scale": LORA_SCALE}
    write_meta(folder, state, params)
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize("squeezed", [True, False])
def test_logits_are_those_of_the_codes_and_adaptors(
    tmp_path: Path, lora: bool, squeezed: bool
) -> None:
    model = tiny_model("llama")
    folder = write_quantized(tmp_path / "m", model, lora=lora, squeezed=squeezed)
    options = {"kv_bits": 32, "context": CONTEXT, "prefill_ar_len": 32}
    path = satchel.export(folder, tmp_path / "m.satchel", recipe="keep", **options)
    program = satchel.load(path, verify=True)
    found = {w["name"].removeprefix("model."): (w["encoding"], w["group"]) for w in program.weights}
    assert found["layers.0.self_attn.q_proj.weight"] == ("matrix_q4", GROUP)
    assert found["embed_tokens.weight"] == found["lm_head.weight"] == ("matrix_q8", 64)
    assert ("layers.1.mlp.up_proj.adaptor.A.weight" in found) == lora
    assert not any(program.metadata["weight_error"][n] for n in ("lm_head.weight",))
    wanted = logits_of(model, TOKENS)
    for way, got in both_ways(path).items():
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE, err_msg=way)


def test_codes_are_those_of_the_file(tmp_path: Path) -> None:
    plain = tiny_model("llama")
    folder = write_quantized(tmp_path / "m", plain, lora=False)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.quantized_by == "8da4w"
        for name, parameter in plain.named_parameters():
            np.testing.assert_array_equal(checkpoint.read(name), parameter.detach().numpy(), name)
    program = satchel.load(satchel.export(folder, tmp_path / "m.satchel", recipe="keep"))
    for name, parameter in plain.named_parameters():
        np.testing.assert_array_equal(program.weight(name), parameter.detach().numpy(), name)


def test_flags_keep_the_codes_with_activations_of_8_bits(tmp_path: Path) -> None:
    folder = write_quantized(tmp_path / "m", tiny_model("llama"))
    job = prepare_export(folder, ExportOptions(**PREQ))
    assert job.portable.recipe.describe() == "keep, activations 8 bits, KV cache f16"
    nodes = [n for n in job.graphs[0].nodes if n.op == "linear"]
    rounded = [n.attrs.get("activations") for n in nodes]
    assert rounded.count("int8") == 2 * 7 + 1 and rounded.count(None) == 2 * 7 * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preq_group_size": 64}, "preq_group_size is 64, and .* has 32"),
        ({"preq_embedding": (8, 32)}, r"preq_embedding is \(8, 32\), and .* has \(8, 0\)"),
        ({"lora_rank": 16}, "lora_rank is 16, and .* has 4"),
        ({"preq_mode": "8da4w"}, "preq_mode is 8da4w, and .* has 8da4w_output_8da8w"),
    ],
)
def test_flags_that_are_not_so(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = write_quantized(tmp_path / "m", tiny_model("llama"))
    with pytest.raises(ConfigError, match=message):
        prepare_export(folder, ExportOptions(**{**PREQ, **change}))


def test_what_else_is_refused(tmp_path: Path) -> None:
    folder = write_quantized(tmp_path / "m", tiny_model("llama"), lora=False)
    with pytest.raises(ConfigError, match="lora_rank is 4, and .* has none"):
        prepare_export(folder, ExportOptions(**PREQ))
    with pytest.raises(RecipeError, match=r"already quantised \(8da4w\), and 16a4w would round"):
        prepare_export(folder, ExportOptions("16a4w"))
    with pytest.raises(ConfigError, match="no preq_mode '4w'"):
        ExportOptions(preq_mode="4w")
    model = tiny_model("llama")
    plain = write_meta(
        tmp_path / "plain", meta_state(arrays(model), model.config), meta_params(model.config)
    )
    write_tokenizer(plain)
    with pytest.raises(ConfigError, match="is not a checkpoint of Meta's that comes quantised"):
        prepare_export(plain, ExportOptions(**PREQ))


def test_scales_of_32_bits_are_rounded_and_told(tmp_path: Path) -> None:
    key = "layers.0.feed_forward.w1.scales"

    def change(state: State) -> None:
        state[key] *= 1.0003

    model = tiny_model("llama")
    folder = write_quantized(tmp_path / "m", model, lora=False, change=change)
    program = satchel.load(satchel.export(folder, tmp_path / "m.satchel", recipe="keep"))
    error = program.metadata["weight_error"]
    assert 1e-5 < error["model.layers.*.mlp.gate_proj.weight"] < 2**-11
    assert error["model.layers.*.mlp.up_proj.weight"] == 0
    name = "model.layers.0.mlp.gate_proj.weight"
    with open_checkpoint(folder) as checkpoint:
        exact = checkpoint.read(name)
    np.testing.assert_allclose(program.weight(name), exact, rtol=2**-11)


WQ = "layers.0.attention.wq"
BAD: dict[str, tuple[Callable[[State], object], str]] = {
    "codes of 8 bits": (lambda s: s[f"{WQ}.weight"].fill_(9), "codes that 4 bits do not have"),
    "too many scales": (
        lambda s: s.update({f"{WQ}.scales": torch.ones(64, 7)}),
        r"does not fit scales of shape \[64, 7\]",
    ),
    "float codes": (
        lambda s: s.update({f"{WQ}.weight": s[f"{WQ}.weight"].float()}),
        "f32 of shape .* does not fit scales",
    ),
    "zero points": (
        lambda s: s.update({f"{WQ}.zeros": torch.ones(64, 2)}),
        "zero points other than 0",
    ),
    "half an adaptor": (lambda s: s.pop(f"{WQ}.adaptor.B.weight"), "adaptor of .* is not whole"),
    "no scales": (lambda s: s.pop(f"{WQ}.scales"), "has the type i8"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_checkpoints(tmp_path: Path, name: str) -> None:
    change, message = BAD[name]
    folder = write_quantized(tmp_path / "m", tiny_model("llama"), change=change)
    with pytest.raises(CheckpointError, match=message):
        satchel.export(folder, tmp_path / "m.satchel", recipe="keep")
    assert not (tmp_path / "m.satchel").exists()


def test_another_way_of_quantising(tmp_path: Path) -> None:
    arguments = {"scheme": "fp8_mixed"}
    folder = write_quantized(tmp_path / "m", tiny_model("llama"), arguments=arguments)
    with pytest.raises(CheckpointError, match="the quantisation is 'fp8_mixed'"):
        open_checkpoint(folder)


def hadamard(size: int) -> torch.Tensor:
    """Entry i, j is -1 to the power of the bits that i and j have in common."""
    signs = [[(-1.0) ** (i & j).bit_count() for j in range(size)] for i in range(size)]
    return torch.tensor(signs) / size**0.5


@pytest.mark.parametrize("recipe", ["keep", "fp32"])
@pytest.mark.parametrize("ffn", [64, 128])
def test_spinquant(tmp_path: Path, ffn: int, recipe: str) -> None:
    """Its feed-forward computes w2(H(silu(w1 x) * w3 x)): so w2 H is what a plain model has."""
    model = tiny_model("llama", intermediate_size=ffn)
    arguments = {"spinquant": True}
    folder = write_quantized(tmp_path / "m", model, lora=False, arguments=arguments)
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if "down_proj" in name:
                weight.copy_(weight @ hadamard(ffn))
    options = {"kv_bits": 32, "context": CONTEXT, "prefill_ar_len": 32}
    path = satchel.export(folder, tmp_path / "m.satchel", recipe=recipe, **options)
    wanted = logits_of(model, TOKENS)
    tolerance = TOLERANCE if recipe == "keep" else FLOAT_TOLERANCE
    for way, got in both_ways(path).items():
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance, err_msg=way)


def test_spinquant_needs_a_power_of_two(tmp_path: Path) -> None:
    arguments = {"spinquant": True}
    folder = write_quantized(tmp_path / "m", tiny_model("llama"), lora=False, arguments=arguments)
    with pytest.raises(CheckpointError, match="96 columns, and a Hadamard transform needs a power"):
        prepare_export(folder, ExportOptions("keep"))
