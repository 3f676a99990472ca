"""With fp32 weights, logits are those of transformers: prefill, token by token, all kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import satchel
from models.family_check import (
    BLOCK,
    CONTEXT,
    TOKENS,
    TOLERANCE,
    Logits,
    both_ways,
    with_kernels,
)
from models.model_rows import ROWS
from satchel import _native
from satchel.models import architectures
from support.tiny_models import logits_of, tiny_model, write_checkpoint

KERNELS = ("portable", _native.kernels.available()[-1])


@dataclass
class Exported:
    program: Path
    wanted: Logits


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("families")
    result = {}
    for row in ROWS:
        model = tiny_model(row.model_type, **row.config)
        checkpoint = write_checkpoint(folder / row.id, model)
        program = satchel.export(
            checkpoint,
            folder / f"{row.id}.satchel",
            recipe="fp32",
            context=CONTEXT,
            prefill_ar_len=BLOCK,
        )
        result[row.id] = Exported(program, logits_of(model, TOKENS))
    return result


@pytest.fixture(scope="module")
def logits(
    exported: dict[str, Exported], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], dict[str, Logits]]:
    """By row and kernels. The best kernels run here, the others in a process of their own."""
    paths = [exported[row.id].program for row in ROWS]
    result = {}
    for kernels in KERNELS:
        here = kernels == KERNELS[-1]
        folder = tmp_path_factory.mktemp("logits")
        got = list(map(both_ways, paths)) if here else with_kernels(kernels, paths, folder)
        result |= {(row.id, kernels): one for row, one in zip(ROWS, got, strict=True)}
    return result


def test_every_architecture_has_a_row() -> None:
    assert {row.model_type for row in ROWS} == set(architectures())


@pytest.mark.parametrize("kernels", dict.fromkeys(KERNELS))
@pytest.mark.parametrize("way", ["prefill", "decode"])
@pytest.mark.parametrize("row", [row.id for row in ROWS])
def test_logits_are_those_of_transformers(
    exported: dict[str, Exported],
    logits: dict[tuple[str, str], dict[str, Logits]],
    row: str,
    way: str,
    kernels: str,
) -> None:
    wanted, got = exported[row].wanted, logits[row, kernels][way]
    assert got.shape == wanted.shape
    assert wanted.std() > 0.5  # or there would be nothing to compare
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE)


def test_some_rows_of_a_block_are_the_same_rows(exported: dict[str, Exported]) -> None:
    """What is asked for does not change what is computed, and may come in any order."""
    one = exported[ROWS[0].id]
    prefill = satchel.load(one.program).method("prefill_forward")
    rows = [17, 3, 3]
    got = prefill(TOKENS[:20], [0], rows)
    np.testing.assert_allclose(got, one.wanted[rows], rtol=0, atol=TOLERANCE)
