"""Which 4-bit weights have scales of a byte: those rounded plainly, where that is smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from exporter.test_export_prequantized_gguf import rounded_like_gguf, write
from models.family_check import CONTEXT
from support.tiny_models import tiny_model, write_checkpoint

SIZES: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}


def exported(source: Path, folder: Path, **options: Any) -> satchel.Program:
    program = folder / "m.satchel"
    satchel.export(source, program, recipe="8da4w", context=CONTEXT, prefill_ar_len=32, **options)
    return satchel.load(program, verify=True)


def matrices(program: satchel.Program) -> set[str]:
    return {w["encoding"] for w in program.weights if len(w["shape"]) == 2}


def test_they_make_the_file_smaller(tmp_path: Path) -> None:
    program = exported(write_checkpoint(tmp_path / "m", tiny_model("llama", **SIZES)), tmp_path)
    assert matrices(program) == {"matrix_q4_steps"}
    for weight in program.weights:
        if weight["encoding"] == "matrix_q4_steps":
            rows, cols = weight["shape"]
            assert weight["scales_size"] == -(-rows // 16) * (64 + 16 * cols // 32)
            assert weight["scales_size"] < -(-rows // 16) * 32 * cols // 32


def test_narrow_matrices_keep_scales_of_16_bits(tmp_path: Path) -> None:
    """Up to four groups, the steps take as much as the bytes save."""
    source = write_checkpoint(tmp_path / "m", tiny_model("llama", intermediate_size=128))
    assert matrices(exported(source, tmp_path)) == {"matrix_q4"}


@pytest.mark.parametrize("rounding", ["search", "plain"])
def test_searched_scales_keep_16_bits(tmp_path: Path, rounding: str) -> None:
    source = write_checkpoint(tmp_path / "m", tiny_model("llama", **SIZES))
    found = matrices(exported(source, tmp_path, rounding=rounding))
    assert found == {"matrix_q4" if rounding == "search" else "matrix_q4_steps"}


def test_what_lies_on_the_grid_of_a_file_stays_there(tmp_path: Path) -> None:
    """GGUF's scales are no multiples of a step; rounding its numbers again changes none."""
    model = tiny_model("llama", **SIZES)
    program = exported(write(tmp_path, model, "Q4_0"), tmp_path)
    assert matrices(program) == {"matrix_q4"}
    for name, parameter in rounded_like_gguf(model, "Q4_0").named_parameters():
        np.testing.assert_allclose(program.weight(name), parameter.detach(), rtol=1e-6)


def test_numbers_of_another_form_are_rounded_with_steps(tmp_path: Path) -> None:
    program = exported(write(tmp_path, tiny_model("llama", **SIZES), "Q8_0"), tmp_path)
    assert matrices(program) == {"matrix_q4_steps"}
