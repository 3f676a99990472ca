"""With every scheme, a program computes what the reference does with the same stored weights."""

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
Q8 = ("matrix_q8", 256)  # a whole row
STEPS = ("matrix_q4_steps", 32)  # smaller than matrix_q4 where a row has enough groups

# tied, options, and encodings that must be in the file
VARIATIONS: list[tuple[bool, dict[str, Any], dict[str, tuple[str, int]]]] = [
    (False, {}, {EMBEDDING: STEPS, HEAD: STEPS, LAYER: STEPS}),
    (False, {"group_size": 64}, {EMBEDDING: ("matrix_q4", 64), LAYER: ("matrix_q4_steps", 64)}),
    (False, {"group_size": 128}, {LAYER: ("matrix_q4", 128)}),
    (False, {"group_size": 256}, {LAYER: ("matrix_q4", 256)}),
    (False, {"embedding": (8, 0)}, {EMBEDDING: ("matrix_q8", 256), HEAD: STEPS}),
    (False, {"embedding": (8, 32)}, {EMBEDDING: ("matrix_q8", 32), HEAD: STEPS}),
    (False, {"embedding": (4, 0)}, {EMBEDDING: ("matrix_q4", 256), HEAD: STEPS}),
    (False, {"embedding": (4, 32), "group_size": 64}, {EMBEDDING: STEPS}),
    (False, {"head_bits": 8}, {EMBEDDING: STEPS, HEAD: ("matrix_q8", 32)}),
    (True, {}, {EMBEDDING: STEPS}),
    (True, {"head_bits": 8}, {EMBEDDING: STEPS, TIED_HEAD: ("matrix_q8", 32)}),
    (True, {"head_bits": 8, "embedding": (8, 32)}, {EMBEDDING: ("matrix_q8", 32)}),
    (True, {"head_bits": 8, "embedding": (8, 0)}, {EMBEDDING: Q8}),
    (True, {"embedding": (8, 0)}, {EMBEDDING: ("matrix_q8", 256), TIED_HEAD: STEPS}),
    (False, {"recipe": "8a8w"}, {EMBEDDING: Q8, HEAD: Q8, LAYER: ("matrix_q8", 512)}),
    (True, {"recipe": "8a8w"}, {EMBEDDING: Q8}),
    (False, {"recipe": "16a8w"}, {EMBEDDING: Q8, HEAD: Q8, LAYER: ("matrix_q8", 512)}),
    (True, {"recipe": "16a8w", "kv_bits": 8}, {EMBEDDING: Q8}),
    (False, {"recipe": "16a4w"}, {EMBEDDING: Q8, HEAD: Q8, LAYER: ("matrix_lpbq4", 32)}),
    (True, {"recipe": "16a4w", "group_size": 16}, {EMBEDDING: Q8, LAYER: ("matrix_lpbq4", 16)}),
    (False, {"recipe": "16a4w", "group_size": 64, "kv_bits": 8}, {LAYER: ("matrix_lpbq4", 64)}),
    (False, {"recipe": "16a4w", "head_bits": 4}, {HEAD: ("matrix_lpbq4", 32), EMBEDDING: Q8}),
    (False, {"kv_bits": 8}, {LAYER: STEPS}),
    (True, {"kv_bits": 32}, {LAYER: STEPS}),
    (
        False,
        {"overrides": {"layers.*.mlp.down": "16a8w", "layers.0.*": "16a4w:16", "lm_head": "8a8w"}},
        {
            HEAD: Q8,
            LAYER: ("matrix_q8", 512),
            "model.layers.0.mlp.down_proj.weight": ("matrix_lpbq4", 16),
            "model.layers.1.mlp.up_proj.weight": STEPS,
        },
    ),
    (True, {"overrides": {"embed_tokens": "16a4w"}}, {EMBEDDING: ("matrix_lpbq4", 32)}),
]
CACHES = {8: DType.u8, 16: DType.f16, 32: DType.f32}


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
    caches = {t.dtype for g in pair.graphs.values() for t in g.states.values()}
    assert caches == {CACHES[options.get("kv_bits", 16)]}
    native, reference = pair.run_all(TOKENS, PREFILL)
    assert reference.std() > 0.5
    assert relative_difference(native[:PREFILL], reference[:PREFILL]) <= TOLERANCE
    assert relative_difference(native[PREFILL:], reference[PREFILL:]) <= TOLERANCE


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"kv_bits": 8},
        {"recipe": "8a8w"},
        {"recipe": "16a8w"},
        {"recipe": "16a4w", "kv_bits": 8},
    ],
    ids=str,
)
def test_prefill_and_decode_agree_to_the_last_bit(
    checkpoints: dict[bool, Path], tmp_path: Path, choice: dict[str, Any]
) -> None:
    """So that hybrid and kv programs give the same text."""
    options: dict[str, Any] = {"context": 64, "prefill_ar_len": 32, **choice}
    pair = QuantizedPair(checkpoints[False], tmp_path / "model.satchel", **options)
    instances = [pair.program.instance(threads=n) for n in (1, 2)]
    prefill, kv = instances[0].method("prefill_forward"), instances[1].method("kv_forward")
    (block,) = prefill.run(TOKENS, [0], np.arange(len(TOKENS)))
    single = [kv.run(TOKENS[at : at + 1], [at])[0] for at in range(len(TOKENS))]
    np.testing.assert_array_equal(block, np.concatenate(single))
