"""Sizes that are computed from symbolic ones: torch's own numbers at every size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812

import satchel
from satchel.errors import GraphError, ImportModuleError, SatchelError
from satchel.graph.types import Sym
from support.compare import assert_close
from torch_import.module_table import Call

LENGTHS = (6, 7, 16, 33, 40)


def test_equal_sizes_have_equal_names() -> None:
    s = Sym("s", 100)
    assert (s - 1) // 2 + 1 == (s + 1) // 2
    assert ((s + 1) // 2 + 1) // 2 == (s + 3) // 4
    assert s * 6 // 4 == s * 3 // 2
    assert (s + 1) - 1 == s and s * 2 // 2 == s and s + s == s * 2
    assert s // 2 * 2 != s and (s - 5) // 4 * 2 + 2 == (s - 1) // 4 * 2
    for size in (s - 1, (s * 3 + 1) // 4, (s // 2 * 3 - 2) // 5 + 7):
        assert isinstance(size, Sym)
        again = s
        for step in size.steps:
            again = again.then(step.times, step.plus, step.over)  # type: ignore[assignment]
        assert again == size
    t = Sym("t", 4)
    assert (s + 1) * t == t + s * t and (s + t) * 2 // 2 == t + s and s * t * 4 // 2 == t * 2 * s
    for size in (s * t + 3, (s + t * 2) // 3 * 2, s * s + t):
        assert isinstance(size, Sym) and size.then(1, 0, 1) == size
    for wrong in (lambda: s * -1, lambda: s // 2 + s, lambda: s // 2 * t):
        with pytest.raises(GraphError):
            wrong()


def check(module: Any, tmp_path: Path, axes: dict[int, Any], shape: list[int], sizes: Any) -> None:
    """Export with symbolic axes, and run with each of the sizes for them."""
    torch.manual_seed(4)
    module = (module if isinstance(module, nn.Module) else Call(module)).eval()
    path = satchel.export(
        module,
        (torch.randn(shape),),
        tmp_path / "m.satchel",
        dynamic_shapes=((axes,),) if isinstance(module, Call) else (axes,),
    )
    method = satchel.load(path).method()
    for given in sizes:
        own = list(shape)
        for axis, size in zip(axes, given if isinstance(given, tuple) else (given,), strict=True):
            own[axis] = size
        x = torch.randn(own)
        with torch.no_grad():
            wanted = module(x).numpy()
        made = method(x.numpy())
        assert made.shape == wanted.shape
        assert_close(made, wanted, 1e-5)


class Audio(nn.Module):
    """As Whisper begins: convolutions halve the length, and positions are cut to it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 8, 3, padding=1)
        self.second = nn.Conv1d(8, 8, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.randn(20, 8))
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        seen = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        seen = seen + self.positions[: seen.shape[1]]
        heads = [part(seen).unflatten(2, (2, 4)).transpose(1, 2) for part in self.parts]
        made = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return made.transpose(1, 2).flatten(2) / seen.shape[1] ** 0.5


def test_convolutions_halve_a_length(tmp_path: Path) -> None:
    check(Audio(), tmp_path, {2: Dim("length", min=6, max=40)}, [1, 4, 10], LENGTHS)


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.AvgPool2d(2, 1),
            nn.ConvTranspose2d(8, 4, 2, stride=2),
        )

    def forward(self, x: Tensor) -> Tensor:
        seen: Tensor = self.body(x)
        return seen


def test_height_and_width(tmp_path: Path) -> None:
    axes = {2: Dim("height", min=16, max=64), 3: Dim("width", min=16, max=64)}
    check(Image(), tmp_path, axes, [1, 3, 32, 24], [(32, 24), (16, 16), (17, 63), (64, 18)])


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Image(), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))
        return scores


def test_a_classifier_of_any_size(tmp_path: Path) -> None:
    axes = {0: Dim("batch", max=3), 2: Dim("h", min=16, max=40), 3: Dim("w", min=16, max=40)}
    check(Scores(), tmp_path, axes, [2, 3, 32, 24], [(2, 32, 24), (1, 19, 16), (3, 40, 17)])


def differences(x: Tensor) -> Tensor:
    return torch.diff(x, dim=1, prepend=x[:, :1] - 1)


def halves(x: Tensor) -> Tensor:
    return x[:, 1::2][:, :-1] * 2


def counted(x: Tensor) -> Tensor:
    length = x.shape[1]
    mask = torch.triu(torch.full((length, length), -5.0), 1)
    numbers = torch.arange(2, 2 * length + 2, 2) / length
    return (x[:, :, None] * mask[None]).sum(1) + numbers


def padded(x: Tensor) -> Tensor:
    wide = F.pad(x[:, None], (2, 1), mode="reflect")[:, 0]
    return F.pad(F.pad(wide[:, None], (1, 3), mode="replicate")[:, 0], (0, 2))


def joined(x: Tensor) -> Tensor:
    pairs = torch.stack([x, -x], 2)  # [2, s, 2]
    return pairs.reshape(2, 2 * x.shape[1]).unflatten(1, (x.shape[1], 2)).flatten(1)


def last_three(x: Tensor) -> Tensor:
    return x[:, -3:] * x.shape[1] + x[:, x.shape[1] - 2 :].sum(1, keepdim=True) / x.shape[1]


POSITIONS = torch.linspace(-3, 3, 40)


def with_positions(x: Tensor) -> Tensor:
    return x + POSITIONS[: x.shape[1]]


def some_set(x: Tensor) -> Tensor:
    rows, columns = x * 2, torch.tensor([3, -1, 0])
    rows[:, columns] = x[:, 1:4]
    rows.index_put_((torch.tensor([1, 1]),), x, accumulate=True)
    rows[torch.tensor([0])] *= 2
    return rows.index_add(1, torch.tensor([2, 2, 5]), x[:, :3], alpha=3)


def moved(x: Tensor) -> Tensor:
    return x.flip(1).roll((2, -9), (1, 1)) + x.flip(0, 1).roll(-3, 1)


def spread(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True) + x.var() + x.var(0)


FUNCTIONS = [
    *(differences, halves, counted, padded, joined, last_three),
    *(with_positions, some_set, moved, spread),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arithmetic_on_sizes(function: Any, tmp_path: Path) -> None:
    check(function, tmp_path, {1: Dim("s", min=6, max=40)}, [2, 8], LENGTHS)


def test_a_size_that_leaves_nothing_is_refused_when_it_comes(tmp_path: Path) -> None:
    module = nn.Conv1d(2, 2, 4).eval()
    sizes = {2: Dim("s", min=6, max=9)}
    x = torch.randn(1, 2, 8)
    path = satchel.export(module, (x,), tmp_path / "m.satchel", dynamic_shapes=(sizes,))
    method = satchel.load(path).method()
    assert method(np.zeros((1, 2, 6), np.float32)).shape == (1, 2, 3)
    for count in (5, 3):  # less than was said, and nothing left
        with pytest.raises(SatchelError, match="sizes"):
            method(np.zeros((1, 2, count), np.float32))


class LongOrShort(nn.Module):
    """Something else for short lines."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.shape[1] > 5 else -x


@pytest.mark.parametrize("recipe", ["fp32", "int8"])
def test_less_than_the_least_size_is_refused(recipe: str, tmp_path: Path) -> None:
    module, x = LongOrShort().eval(), torch.randn(2, 8, 4)
    sizes = {1: Dim("length", min=6, max=9)}
    path = satchel.export(
        module,
        (x,),
        tmp_path / "m.satchel",
        dynamic_shapes=(sizes,),
        recipe=recipe,
        calibration=[x] if recipe == "int8" else None,
    )
    method = satchel.load(path).method()
    assert method(x[:, :6].numpy()).shape == (2, 6, 4)
    with pytest.raises(SatchelError, match="sizes"):
        method(x[:, :5].numpy())
    with pytest.raises(SatchelError, match="fit"):
        method(np.zeros((1, 2, 10), np.float32))


def test_products_of_divided_sizes_are_refused(tmp_path: Path) -> None:
    module = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(0)).eval()
    sizes = {1: Dim("a", min=4, max=9), 2: Dim("b", min=4, max=9)}
    with pytest.raises(SatchelError, match="the product of the sizes"):
        satchel.export(module, (torch.randn(1, 6, 8),), tmp_path / "m", dynamic_shapes=(sizes,))


class Decoder(nn.Module):
    """A decoder of transformers, as people wrap one."""

    def __init__(self, kind: str) -> None:
        import transformers

        super().__init__()
        if kind == "whisper":
            config = transformers.WhisperConfig(
                vocab_size=60,
                d_model=16,
                decoder_layers=2,
                decoder_attention_heads=2,
                decoder_ffn_dim=32,
                max_target_positions=40,
                encoder_layers=1,
                encoder_attention_heads=2,
                encoder_ffn_dim=32,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
            )
            self.model = transformers.WhisperModel(config).decoder
        else:
            config = transformers.AutoConfig.for_model(
                kind,
                vocab_size=60,
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                intermediate_size=32,
                max_position_embeddings=64,
                head_dim=8,
                pad_token_id=0,
            )
            self.model = transformers.AutoModel.from_config(config)
        self.heard = kind == "whisper"

    def forward(self, ids: Tensor, states: Tensor) -> Tensor:
        more = {"encoder_hidden_states": states} if self.heard else {}
        found: Tensor = self.model(input_ids=ids, use_cache=False, **more).last_hidden_state
        return found + 0 * states.sum()


@pytest.mark.parametrize("kind", ["whisper", "llama"])
def test_decoders_take_any_length(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    module = Decoder(kind).eval()
    states = torch.randn(1, 6, 16)
    path = satchel.export(
        module,
        (torch.randint(3, 60, (1, 8)), states),
        tmp_path / "m.satchel",
        dynamic_shapes=({1: Dim("tokens", min=2, max=40)}, None),
    )
    method = satchel.load(path).method()
    for length in (2, 5, 8, 40):
        ids = torch.randint(3, 60, (1, length))
        with torch.no_grad():
            wanted = module(ids, states).numpy()
        assert_close(method(ids.numpy(), states.numpy()), wanted, 1e-4)


class Of(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def as_long_as_rows(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[1] >= x.shape[0] else x * 3


def of_even_length(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[1] % 2 == 0 else x * 3


def not_of_five(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[1] != 5 else x * 3


CONDITIONS = [
    (as_long_as_rows, {0: Dim("b", max=9), 1: Dim("t", max=9)}, r"x.shape\[1\] >= x.shape\[0\]"),
    (of_even_length, {1: Dim.DYNAMIC(min=2, max=9)}, r"\(x.shape\[1\] % 2\) == 0"),
    (not_of_five, {1: Dim.AUTO(max=9)}, r"x.shape\[1\] != 5"),
]


@pytest.mark.parametrize(("function", "sizes", "condition"), CONDITIONS)
def test_conditions_on_sizes_are_told(
    function: Any, sizes: Any, condition: str, tmp_path: Path
) -> None:
    x = torch.randn(2, 8)
    with pytest.warns(UserWarning, match=f"asks whether {condition}"):
        satchel.export(Of(function).eval(), (x,), tmp_path / "m.satchel", dynamic_shapes=(sizes,))
    saved = torch.export.export(Of(function).eval(), (x,), dynamic_shapes=(sizes,))
    torch.export.save(saved, tmp_path / "m.pt2")
    with pytest.warns(UserWarning, match=f"asks whether {condition}"):
        satchel.export(tmp_path / "m.pt2", tmp_path / "saved.satchel")


def test_conditions_that_always_hold_are_not_told(tmp_path: Path) -> None:
    x = torch.randn(2, 8)
    sizes = ({0: Dim("b", min=2, max=4), 1: Dim("t", min=6, max=9)},)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        satchel.export(
            Of(as_long_as_rows).eval(), (x,), tmp_path / "m.satchel", dynamic_shapes=sizes
        )


def test_multiples_of_sizes_are_refused_by_name(tmp_path: Path) -> None:
    sizes = ({1: 4 * Dim("t", min=1, max=9)},)
    with pytest.raises(ImportModuleError, match="the input x has a size that is computed"):
        satchel.export(
            Of(lambda x: x.reshape(-1, x.shape[1] // 4) * 2).eval(),
            (torch.randn(2, 8),),
            tmp_path / "m.satchel",
            dynamic_shapes=sizes,
        )
    assert not list(tmp_path.iterdir())
