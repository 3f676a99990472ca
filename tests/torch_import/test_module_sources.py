"""What torch.export made, choices within a module, layers used twice, and masks in calibration."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import satchel
from satchel.cli.main import main
from satchel.errors import CheckpointError
from support.compare import assert_close
from torch_import.module_table import Call


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.layer(x) - self.layer(3 * y)).abs()


def _pair() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.randn(2, 8), torch.randn(2, 8)


@pytest.mark.parametrize("form", ["program", "module", "file"])
def test_what_torch_has_exported_is_taken(form: str, tmp_path: Path) -> None:
    inputs = _pair()
    made: Any = torch.export.export(Siamese().eval(), inputs)
    wanted = made.module()(*inputs).detach().numpy()
    if form == "module":
        made = made.module()
    elif form == "file":
        torch.export.save(made, tmp_path / "x.pt2")
        made = torch.export.load(tmp_path / "x.pt2")
    path = satchel.export(made, inputs, tmp_path / "x.satchel")
    assert_close(satchel.load(path).method()(*(x.numpy() for x in inputs)), wanted, 1e-5)


def test_files_of_torch_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = _pair()
    sizes = {0: torch.export.Dim("batch", max=4)}
    made = torch.export.export(Siamese().eval(), inputs, dynamic_shapes=(sizes, sizes))
    torch.export.save(made, tmp_path / "net.pt2")
    path = satchel.export(tmp_path / "net.pt2", tmp_path / "a.satchel")
    assert satchel.load(path).metadata["name"] == "net"
    asked = ["export", str(tmp_path / "net.pt2"), "-o", str(tmp_path / "b.satchel"), "--json"]
    assert main([*asked, "--recipe", "fp16"]) == 0
    assert json.loads(capsys.readouterr().out)["recipe"] == "fp16"
    x, y = (torch.cat([v, v[:1]]) for v in inputs)
    wanted = made.module()(x, y).detach().numpy()
    for name, most in (("a", 1e-5), ("b", 1e-2)):
        method = satchel.load(tmp_path / f"{name}.satchel").method()
        assert_close(method(x.numpy(), y.numpy()), wanted, most)


class Trap:
    """What a pickle runs when it is read."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> Any:
        return Path.touch, (self.sign,)


def test_nothing_pickled_in_a_file_is_run(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Siamese().eval(), _pair()), tmp_path / "net.pt2")
    trap = io.BytesIO()
    torch.save(Trap(tmp_path / "ran"), trap)
    with zipfile.ZipFile(tmp_path / "net.pt2") as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    inputs = next(name for name in parts if "sample_inputs" in name and name.endswith(".pt"))
    for name, content in ((inputs, trap.getvalue()), ("net/data/constants/opaque_obj_0", b"")):
        with zipfile.ZipFile(tmp_path / "bad.pt2", "w") as changed:
            for other, data in {**parts, name: content}.items():
                changed.writestr(other, data)
        with pytest.raises(CheckpointError, match="bad"):
            satchel.export(tmp_path / "bad.pt2", tmp_path / "x.satchel")
    assert not (tmp_path / "ran").exists()
    (tmp_path / "text.pt2").write_text("no archive")
    with pytest.raises(CheckpointError, match=r"no \.pt2 file"):
        satchel.export(tmp_path / "text.pt2")
    with pytest.raises(CheckpointError, match="does not exist"):
        satchel.export(tmp_path / "none.pt2")


class Recurrent(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.cells = kind(8, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cells(x)[0]
        return out


@pytest.mark.parametrize("kind", ["siamese", nn.LSTM, nn.GRU])
def test_a_layer_that_is_used_twice_is_quantised(kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(5)
    module = (Siamese() if kind == "siamese" else Recurrent(kind)).eval()
    inputs = _pair() if kind == "siamese" else (torch.randn(1, 6, 8),)
    path = satchel.export(
        module, inputs, tmp_path / "x.satchel", recipe="int8", calibration=[inputs]
    )
    program = satchel.load(path)
    with torch.no_grad():
        wanted = module(*inputs).numpy()
    got = program.method()(*(x.numpy() for x in inputs))
    assert any(w["encoding"] == "matrix_i8" for w in program.weights)
    assert np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def double(x: Tensor) -> Tensor:
            return x * 2

        def negate(x: Tensor) -> Tensor:
            return -x.flip(0)

        return torch.cond(x.sum() > 0, double, negate, (x,))  # type: ignore[no-any-return]


def test_a_choice_between_two_graphs(tmp_path: Path) -> None:
    x = torch.tensor([1.0, -3.0, 4.0])
    method = satchel.load(satchel.export(Branches().eval(), (x,), tmp_path / "x.satchel")).method()
    for one in (x, -x):
        np.testing.assert_array_equal(method(one.numpy()), Branches()(one).numpy())


def test_places_of_the_greatest_and_back(tmp_path: Path) -> None:
    def there_and_back(x: Tensor) -> tuple[Tensor, Tensor]:
        y, places = F.max_pool2d(x, 3, 2, padding=1, return_indices=True)
        return F.max_unpool2d(y, places, 3, 2, padding=1, output_size=x.shape[-2:]), places

    x = torch.randn(2, 3, 9, 9)
    path = satchel.export(Call(there_and_back).eval(), (x,), tmp_path / "x.satchel")
    for got, want in zip(
        satchel.load(path).method().run(x.numpy()), there_and_back(x), strict=True
    ):
        np.testing.assert_array_equal(got, want.numpy())


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        q = self.layer(x)
        scores = (q @ q.transpose(1, 2)).masked_fill(hidden, -torch.inf)
        return scores.softmax(-1) @ q


def test_a_mask_of_infinities_can_be_calibrated(tmp_path: Path) -> None:
    torch.manual_seed(5)
    module, x = Causal().eval(), torch.randn(1, 6, 8)
    hidden = torch.ones(6, 6).triu(1).bool()
    path = satchel.export(
        module, (x, hidden), tmp_path / "x.satchel", recipe="int8", calibration=[(x, hidden)]
    )
    program = satchel.load(path)
    with torch.no_grad():
        wanted = module(x, hidden).numpy()
    got = program.method()(x.numpy(), hidden.numpy())
    assert np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()
    assert program.metadata["output_snr_db"] > 25


def test_how_an_image_is_resized_is_not_rounded(tmp_path: Path) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, size=(9, 31), mode="bilinear")

    x = torch.randn(1, 2, 7, 12)
    path = satchel.export(Call(resized).eval(), (x,), tmp_path / "x.satchel", recipe="8a8w")
    assert_close(satchel.load(path).method()(x.numpy()), resized(x).numpy(), 1e-5)


class Deep(nn.Module):
    """Each layer alone is well in 8 bits; together they lose the outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.layers = nn.ModuleList([nn.Linear(32, 32, bias=False) for _ in range(10)])
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(2 * layer(x))
        return x


def test_outputs_that_8_bits_would_lose_keep_more_layers_in_floats(tmp_path: Path) -> None:
    torch.manual_seed(2)
    examples = [torch.randn(4, 32) for _ in range(4)]
    made = {}
    for least in (-99.0, 15.0):
        path = satchel.export(
            Deep().eval(),
            (examples[0],),
            tmp_path / f"{least}.satchel",
            recipe="int8",
            calibration=examples,
            least_snr=least,
        )
        made[least] = satchel.load(path)
    plain, guarded = made[-99.0].metadata, made[15.0].metadata
    assert plain["kept_in_float"] == [] and plain["output_snr_db"] < 15
    assert min(plain["layer_snr_db"].values()) < 15
    assert guarded["kept_in_float"] and guarded["output_snr_db"] >= 15
    with torch.no_grad():
        wanted = Deep().eval()(examples[0]).numpy()
    error = {
        least: np.abs(p.method()(examples[0].numpy()) - wanted).mean() for least, p in made.items()
    }
    assert error[15.0] < error[-99.0] / 3
