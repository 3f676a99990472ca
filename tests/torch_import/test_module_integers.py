"""Whole numbers as torch has them: their width, how they wrap, and what is out of range."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import satchel
from satchel.errors import ExecutionError
from torch_import.module_table import Call

LARGE = torch.tensor([2**31 + 5, -(2**40) - 3, 7, -(2**62)])
SMALL = torch.tensor([100, -128, 127, 3, -7])


def _check(function: Callable[..., Any], inputs: tuple[Tensor, ...], folder: Path) -> None:
    path = satchel.export(Call(function).eval(), inputs, folder / "x.satchel")
    got = satchel.load(path).method().run(*(x.numpy() for x in inputs))
    wanted = function(*inputs)
    listed = wanted if isinstance(wanted, tuple) else (wanted,)
    for mine, theirs in zip(got, listed, strict=True):
        np.testing.assert_array_equal(mine, theirs.numpy())


BINARY = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - b,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a),
    "not": lambda a, b: ~a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shift": lambda a, b: (a << 3, a >> 2),
    "floor": lambda a, b: a // b,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "power": lambda a, b: a**3,
    "sum": lambda a, b: (a.sum(), a.cumsum(0), a.prod()),
    "extremes": lambda a, b: (a.max(), a.argmax(), a.min(0)[1], torch.maximum(a, b)),
    "compare": lambda a, b: (a > b, a == b, torch.where(a > b, a, b), a.clamp(-5, 9)),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_arithmetic_wraps_as_torchs_does(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    a = LARGE.to(dtype) if dtype in (torch.int64, torch.int32) else SMALL.to(dtype)
    b = torch.tensor([3, 5, 2, 9, 7])[: len(a)].to(dtype)
    _check(BINARY[name], (a, b), tmp_path)


def test_numbers_beyond_32_bits_are_kept(tmp_path: Path) -> None:
    _check(lambda i: (i * 2654435761) % 2**32 >> 7, (torch.tensor([1, 2, 2**33]),), tmp_path)


def test_sums_and_remainders_are_exact_where_floats_are_not(tmp_path: Path) -> None:
    ids = torch.tensor([2**24 + 1, 2**24 + 3, 2**30 + 7], dtype=torch.int32)
    _check(lambda i: (i.sum(), i % 1000, i // 7, i.amax()), (ids,), tmp_path)


def test_whole_numbers_multiply_as_matrices(tmp_path: Path) -> None:
    a = torch.randint(-(2**20), 2**20, (3, 4))
    _check(lambda a, b: a @ b, (a, a.T.contiguous() + 1), tmp_path)


def test_division_by_zero_is_an_error(tmp_path: Path) -> None:
    path = satchel.export(Call(lambda a, b: a // b).eval(), (SMALL, SMALL), tmp_path / "x.satchel")
    with pytest.raises(ExecutionError, match="divided by zero"):
        satchel.load(path).method()(SMALL.numpy(), np.zeros(5, np.int64))


def test_an_embedding_has_no_entry_beyond_its_end(tmp_path: Path) -> None:
    path = satchel.export(nn.Embedding(4, 2).eval(), (torch.tensor([1]),), tmp_path / "x.satchel")
    method = satchel.load(path).method()
    for wrong in (2**32 + 1, 4, -1, -(2**40)):
        with pytest.raises(ExecutionError, match=str(wrong)):
            method(np.array([wrong]))


def test_an_input_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    module, ids = Call(lambda i: i + 1).eval(), torch.tensor([1], dtype=torch.int32)
    method = satchel.load(satchel.export(module, (ids,), tmp_path / "x.satchel")).method()
    assert method(np.array([5])) == 6
    with pytest.raises(ExecutionError, match="2147483653, which is no int32"):
        method(np.array([2**31 + 5]))


NUMBERS = {
    "beyond 32 bits": lambda i: (i * 2654435761, 2654435761 - i, i & 2654435761, i % 2654435761),
    "compared": lambda i: (i < 2654435761, i >= 2**40, i != 2**40),
    "beyond 8 bits": lambda i: (i.to(torch.uint8) < 300, i.to(torch.int8) + 200, i.char() < 200),
    "divided": lambda i: (i // 2654435761, i.to(torch.uint8) % 300),
    "another tensor": lambda i: torch.maximum(i.to(torch.uint8), torch.tensor(300)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_comes_around_in_the_tensors_own_width(name: str, tmp_path: Path) -> None:
    _check(NUMBERS[name], (torch.tensor([1, 7, 2**30, -3], dtype=torch.int32),), tmp_path)


def test_whole_numbers_are_taken_where_the_module_has_floats(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 2.5])
    method = satchel.load(satchel.export(nn.ReLU().eval(), (x,), tmp_path / "x.satchel")).method()
    for dtype in (np.int64, np.int32, np.int16, np.uint8):
        np.testing.assert_array_equal(method(np.array([3, 7], dtype)), [3.0, 7.0])
