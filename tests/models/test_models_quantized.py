"""With 8da4w, a program computes what the reference computes with the same stored weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.quantized_check import QuantizedPair
from satchel.graph.ir import DType
from support.arrays import integers
from support.compare import relative_difference
from support.tiny_models import tiny_model, write_checkpoint

TOKENS, PREFILL = integers(28, below=258, seed="quantized"), 20
TOLERANCE = 1e-3

EMBEDDING, HEAD, LAYER = (
    "model.embed_tokens.weight",
    "lm_head.weight",
    "model.layers.1.mlp.down_proj.weight",
)
TIED_HEAD = f"{EMBEDDING}#head"

# tied, options, and encodings that must be in the file
VARIATIONS: list[tuple[bool, dict[str, Any], dict[str, tuple[str, int]]]] = [
    (False, {}, {EMBEDDING: ("matrix_q4", 32), HEAD: ("matrix_q4", 32), LAYER: ("matrix_q4", 32)}),
    (False, {"group_size": 64}, {EMBEDDING: ("matrix_q4", 64), LAYER: ("matrix_q4", 64)}),
    (False, {"group_size": 128}, {LAYER: ("matrix_q4", 128)}),
    (False, {"group_size": 256}, {LAYER: ("matrix_q4", 256)}),
    (False, {"embedding": (8, 0)}, {EMBEDDING: ("matrix_q8", 256), HEAD: ("matrix_q4", 32)}),
    (False, {"embedding": (8, 32)}, {EMBEDDING: ("matrix_q8", 32), HEAD: ("matrix_q4", 32)}),
    (False, {"embedding": (4, 0)}, {EMBEDDING: ("matrix_q4", 256), HEAD: ("matrix_q4", 32)}),
    (False, {"embedding": (4, 32), "group_size": 64}, {EMBEDDING: ("matrix_q4", 32)}),
    (False, {"head_bits": 8}, {EMBEDDING: ("matrix_q4", 32), HEAD: ("matrix_q8", 32)}),
    (True, {}, {EMBEDDING: ("matrix_q4", 32)}),
    (True, {"head_bits": 8}, {EMBEDDING: ("matrix_q4", 32), TIED_HEAD: ("matrix_q8", 32)}),
    (True, {"head_bits": 8, "embedding": (8, 32)}, {EMBEDDING: ("matrix_q8", 32)}),
    (True, {"embedding": (8, 0)}, {EMBEDDING: ("matrix_q8", 256), TIED_HEAD: ("matrix_q4", 32)}),
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder = tmp_path_factory.mktemp("quantized")
    sizes = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
    return {
        tied: write_checkpoint(
            folder / f"tied-{tied}", tiny_model("llama", tie_word_embeddings=tied, **sizes)
        )
        for tied in (False, True)
    }


@pytest.mark.parametrize(
    ("tied", "options", "encodings"),
    VARIATIONS,
    ids=[f"{'tied' if tied else 'untied'}-{options}" for tied, options, _ in VARIATIONS],
)
def test_logits_are_those_of_the_reference(
    checkpoints: dict[bool, Path],
    tmp_path: Path,
    tied: bool,
    options: dict[str, Any],
    encodings: dict[str, tuple[str, int]],
) -> None:
    output = tmp_path / "model.satchel"
    pair = QuantizedPair(checkpoints[tied], output, context=64, prefill_ar_len=32, **options)
    for name, encoding in encodings.items():
        assert pair.encodings[name] == encoding
    assert (TIED_HEAD in pair.encodings) == (TIED_HEAD in encodings)
    assert (HEAD in pair.encodings) == (not tied)
    assert {t.dtype for g in pair.graphs.values() for t in g.states.values()} == {DType.f16}
    native, reference = pair.run_all(TOKENS, PREFILL)
    assert reference.std() > 0.5
    assert relative_difference(native[:PREFILL], reference[:PREFILL]) <= TOLERANCE
    assert relative_difference(native[PREFILL:], reference[PREFILL:]) <= TOLERANCE


def test_prefill_and_decode_agree_to_the_last_bit(
    checkpoints: dict[bool, Path], tmp_path: Path
) -> None:
    """So that hybrid and kv programs give the same text."""
    options = {"context": 64, "prefill_ar_len": 32}
    pair = QuantizedPair(checkpoints[False], tmp_path / "model.satchel", **options)
    instances = [pair.program.instance(threads=n) for n in (1, 2)]
    prefill, kv = instances[0].method("prefill_forward"), instances[1].method("kv_forward")
    (block,) = prefill.run(TOKENS, [0], np.arange(len(TOKENS)))
    single = [kv.run(TOKENS[at : at + 1], [at])[0] for at in range(len(TOKENS))]
    np.testing.assert_array_equal(block, np.concatenate(single))
