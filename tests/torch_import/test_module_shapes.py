"""Symbolic sizes, layout, fusion, recipes, and modules made up at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import satchel
from satchel.errors import RecipeError
from support.compare import assert_close
from torch_import.module_table import Residual, SqueezeExcite


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        x = torch.cat([self.token.expand(n, 1, 8), x], 1)
        q, k, v = self.qkv(x).view(n, 6, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(x.transpose(1, 2).flatten(2))


def ops_of(path: Path) -> dict[str, int]:
    found: dict[str, int] = satchel.load(path).methods[0]["ops"]
    return found


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(100, 2)), (3, 7, 7)),
        (SelfAttention(), (5, 8)),
        (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3), nn.Softmax(-1)), (4, 6)),
    ],
)
def test_the_batch_may_be_symbolic(module: nn.Module, shape: Any, tmp_path: Path) -> None:
    module = module.eval()
    batch = {0: torch.export.Dim("batch", min=1, max=5)}
    path = satchel.export(
        module, (torch.randn(2, *shape),), tmp_path / "x.satchel", dynamic_shapes=(batch,)
    )
    method = satchel.load(path).method()
    for count in (1, 2, 5):
        x = torch.randn(count, *shape)
        with torch.no_grad():
            assert_close(method(x.numpy()), module(x).numpy(), 1e-4)


def test_batch_norm_residual_activation_and_layout_leave_one_transpose(tmp_path: Path) -> None:
    module = nn.Sequential(Residual(5), SqueezeExcite(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    path = satchel.export(module.eval(), (torch.randn(1, 5, 9, 8),), tmp_path / "x.satchel")
    wanted = {"transpose": 1, "conv2d": 7, "reduce_mean": 2, "mul": 1}
    found = ops_of(path)
    found.pop("reshape", None)
    assert found == wanted


def test_attention_is_one_op(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    found = ops_of(satchel.export(layer, (torch.randn(2, 5, 8),), tmp_path / "x.satchel"))
    assert found["attention_qkv"] == 1 and "softmax" not in found


@pytest.mark.parametrize(("recipe", "tolerance"), [("fp16", 2e-3), ("8a8w", 0.05), ("int8", 0.1)])
def test_recipes(recipe: str, tolerance: float, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).eval()
    x = torch.randn(6, 16)
    path = satchel.export(
        module,
        (x,),
        tmp_path / "x.satchel",
        recipe=recipe,
        calibration=[x] if recipe == "int8" else None,
    )
    with torch.no_grad():
        assert_close(satchel.load(path).method()(x.numpy()), module(x).numpy(), tolerance)
    assert satchel.load(path).metadata["recipe"]["name"] == recipe
    kinds = {"fp16": "matrix_f16", "8a8w": "matrix_q8", "int8": "matrix_i8"}
    stored = {w["name"]: w["encoding"] for w in satchel.load(path).weights}
    assert stored["0.weight"] == stored["2.weight"] == kinds[recipe]


def test_overrides_keep_layers_in_floats(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    x = torch.randn(6, 16)
    path = satchel.export(
        module,
        (x,),
        tmp_path / "x.satchel",
        recipe="int8",
        calibration=[x],
        overrides={"2*": "fp16"},
    )
    stored = {w["name"]: w["encoding"] for w in satchel.load(path).weights}
    assert (stored["0.weight"], stored["2.weight"]) == ("matrix_i8", "matrix_f16")


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (None, "needs examples"),
        ([], "nothing to calibrate on"),
        ([torch.full((6, 16), float("nan"))], "calibration data gives nan"),
        ([torch.randn(6, 15)], "must be f32"),
        ([torch.ones(6, 16, dtype=torch.int64)], "has int64"),
        ([(torch.randn(6, 16), torch.randn(1))], "has 2 inputs"),
        ([{"y": torch.randn(6, 16)}], "lacks the input"),
    ],
)
def test_bad_calibration_is_refused(calibration: Any, message: str, tmp_path: Path) -> None:
    module, x = nn.Linear(16, 8).eval(), torch.randn(6, 16)
    output = tmp_path / "x.satchel"
    with pytest.raises(satchel.SatchelError, match=message):
        satchel.export(module, (x,), output, recipe="int8", calibration=calibration)
    assert not output.exists()


def test_an_unknown_observer_is_refused() -> None:
    with pytest.raises(RecipeError, match="no observer 'best'"):
        satchel.export(nn.ReLU().eval(), (torch.ones(2),), recipe="int8", observer="best")


@st.composite
def modules(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """A chain of layers over images, of odd sizes."""
    channels, height, width = (
        draw(st.integers(1, 6)),
        draw(st.integers(5, 12)),
        draw(st.integers(5, 12)),
    )
    shape = (draw(st.integers(1, 2)), channels, height, width)
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["conv", "depthwise", "norm", "act", "pool", "pad", "linear"]))
        if kind == "conv":
            out, kernel = draw(st.integers(1, 9)), draw(st.integers(1, 3))
            layers.append(nn.Conv2d(channels, out, kernel, draw(st.integers(1, 2)), kernel // 2))
            channels = out
        elif kind == "depthwise":
            layers.append(nn.Conv2d(channels, channels, 3, 1, 2, 2, groups=channels))
        elif kind == "norm":
            layers.append(draw(st.sampled_from([nn.BatchNorm2d, nn.InstanceNorm2d]))(channels))
        elif kind == "act":
            acts = [nn.ReLU, nn.Hardswish, nn.GELU, nn.SiLU, nn.Sigmoid, nn.ReLU6, nn.ELU]
            layers.append(draw(st.sampled_from(acts))())
        elif kind == "pool":
            layers.append(draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))(2, 1))
        elif kind == "pad":
            layers.append(nn.ReflectionPad2d((1, 0, 0, 1)))
        else:
            layers += [nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten(2), nn.Linear(6, 4)]
            layers.append(nn.Unflatten(2, (2, 2)))
            layers.append(nn.Upsample(scale_factor=3, mode="bilinear"))
    return nn.Sequential(*layers), shape


@settings(max_examples=12)
@given(modules())
def test_random_modules_agree_with_torch(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[nn.Module, tuple[int, ...]]
) -> None:
    module, shape = made
    torch.manual_seed(1)
    x = torch.randn(shape)
    path = tmp_path_factory.mktemp("random") / "x.satchel"
    satchel.export(module.eval(), (x,), path)
    with torch.no_grad():
        want = module(x).numpy()
    got = satchel.load(path).method()(x.numpy())
    assert isinstance(got, np.ndarray)
    assert_close(got, want, 1e-4)


class Encoder(nn.Module):
    """Positions, a causal or padding mask, attention and pooling over a sequence of any length."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.words, self.positions = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.table = nn.Parameter(torch.randn(20, 16))
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, ids: Tensor, seen: Tensor) -> tuple[Tensor, ...]:
        batch, length = ids.shape
        x = self.words(ids) + self.positions(torch.arange(length)) + self.table[:length]
        parts = self.qkv(x).view(batch, length, 3, 2, 8).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in parts)
        if self.causal:
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            out = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        else:
            out = nn.functional.scaled_dot_product_attention(q, k, v, seen[:, None, None, :].bool())
        y = self.out(out.transpose(1, 2).reshape(batch, length, 16))
        return (
            y,
            y[:, 0],
            y[:, -1],
            nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        )


@pytest.mark.parametrize("causal", [True, False])
def test_an_encoder_of_any_length(causal: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module = Encoder(causal).eval()

    def inputs(length: int) -> tuple[Tensor, Tensor]:
        return torch.randint(0, 50, (1, length)), (torch.arange(length)[None] < 4).long()

    length = torch.export.Dim("length", min=2, max=20)
    shapes = ({1: length}, {1: length})
    path = satchel.export(module, inputs(7), tmp_path / "x.satchel", dynamic_shapes=shapes)
    method = satchel.load(path).method()
    for n in (2, 7, 13, 20):
        arrays = inputs(n)
        with torch.no_grad():
            wanted = module(*arrays)
        got = method.run(*(x.numpy() for x in arrays))
        for mine, theirs in zip(got, wanted, strict=True):
            assert_close(mine, theirs.numpy(), 1e-5, f"length {n}")
