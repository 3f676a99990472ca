"""GGUF's other types with their own codes: the gguf library's numbers, transformers' logits.

The library reads these types and does not write them, so blocks are random bytes, with scales that
give weights of a usual size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from numpy.typing import NDArray

import satchel
from checkpoints import checkpoint_files
from checkpoints.checkpoint_files import write_gguf
from models.family_check import CONTEXT, TOKENS, both_ways
from models.test_family_formats import tokenizer_metadata
from satchel.checkpoints.gguf_codes import OWN_ENCODINGS
from satchel.encodings.packing import pack_quantized
from satchel.quantize.superblocks import SuperblockWeight
from support.compare import relative_difference
from support.tiny_models import logits_of, tiny_model

# Where a block has its scales of 16 bits; and the types whose groups have no other.
SCALES = {
    "q4_0": [0],
    "q4_1": [0, 2],
    "q5_0": [0],
    "q5_1": [0, 2],
    "q8_0": [0],
    "iq4_nl": [0],
    "q2_k": [80, 82],
    "q3_k": [108],
    "q4_k": [0, 2],
    "q5_k": [0, 2],
    "q6_k": [208],
    "iq4_xs": [0],
}
EXACT = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "q4_k", "q5_k", "q6_k")
WHOLE_MODELS = ("iq4_nl", "q5_0", "q5_1", "q3_k", "q4_k", "q5_k", "q6_k")


def number_of(kind: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[kind.upper()]


def random_blocks(kind: str, rows: int, cols: int, seed: int) -> NDArray[np.uint8]:
    """Rows whose numbers spread as those of a layer with so many columns."""
    block, size = gguf.GGML_QUANT_SIZES[number_of(kind)]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows, cols // block, size), dtype=np.uint8)
    steps = rng.uniform(0.5, 1.5, (rows, cols // block, 1))

    def scaled(by: float) -> NDArray[np.uint8]:
        for at in SCALES[kind]:
            raw[:, :, at : at + 2] = (steps * by).astype("<f2").view(np.uint8)
        return raw.reshape(rows, -1)

    spread = dequantize(scaled(1.0), number_of(kind)).std()
    return scaled(1.5 * cols**-0.5 / float(spread)).copy()


@pytest.mark.parametrize("kind", OWN_ENCODINGS)
def test_codes_and_scales_are_those_of_the_blocks(kind: str) -> None:
    encoding, split = OWN_ENCODINGS[kind]
    raw = random_blocks(kind, 5, 512, seed=1)
    rows = split(raw)
    np.testing.assert_array_equal(rows.floats(), dequantize(raw, number_of(kind)))
    plain = rows.plain() if isinstance(rows, SuperblockWeight) else rows
    assert encoding.has_superblocks == isinstance(rows, SuperblockWeight)
    assert plain.codes.dtype == np.int8 and plain.scales.shape == (5, 512 // encoding.group)
    assert (plain.scales.dtype == np.float16) == (kind in EXACT and plain is rows)
    bits = int(encoding.kind.removeprefix("matrix_q")[0])
    least = 0 if encoding.kind.endswith(("_min", "q4_k", "q5_k")) else -(1 << bits - 1)
    assert least <= plain.codes.min() and plain.codes.max() < least + (1 << bits)


@pytest.mark.parametrize("kind", EXACT)
def test_stored_weights_are_those_of_the_blocks(kind: str) -> None:
    """Rows that fill no tile, packed and read back; whole tiles have as many bytes as the file."""
    encoding, split = OWN_ENCODINGS[kind]
    raw = random_blocks(kind, 37, 768, seed=2)
    rows = split(raw)
    codes, scales = pack_quantized(encoding.layout, rows)
    sizes = encoding.sizes((37, 768))
    assert (codes.nbytes, scales.nbytes) == sizes
    stored = encoding.decode(codes.view(np.uint8), scales.view(np.uint8), (37, 768))
    np.testing.assert_array_equal(stored, dequantize(raw, number_of(kind)))
    assert kind == "iq4_nl" or sum(encoding.sizes((48, 768))) == raw.shape[1] * 48


@pytest.fixture
def random_model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Any]:
    """A model of transformers whose matrices are random blocks of a type, and its file."""
    kind: str = request.param
    sizes = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64}
    model = tiny_model("qwen2", **sizes, tie_word_embeddings=kind == "q6_k")
    raw: dict[bytes, NDArray[np.uint8]] = {}
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            if parameter.dim() > 1:
                blocks = random_blocks(kind, *parameter.shape, seed)
                parameter.copy_(torch.from_numpy(dequantize(blocks, number_of(kind))))
                raw[parameter.numpy().tobytes()] = blocks
    with pytest.MonkeyPatch.context() as patch:

        def quantize(values: NDArray[np.float32], number: gguf.GGMLQuantizationType) -> Any:
            return values if number == 0 else raw[values.tobytes()]

        patch.setattr(checkpoint_files, "quantize", quantize)
        metadata = {"rope.freq_base": 10000.0, **tokenizer_metadata()}
        path = write_gguf(tmp_path / "m.gguf", model, "qwen2", kind=kind.upper(), metadata=metadata)
    return kind, path, model


@pytest.mark.parametrize("random_model", WHOLE_MODELS, indirect=True)
def test_kept_models_are_those_of_the_file(
    random_model: tuple[str, Path, Any], tmp_path: Path
) -> None:
    kind, path, model = random_model
    options = {"kv_bits": 32, "context": CONTEXT, "prefill_ar_len": 32}
    program = satchel.load(satchel.export(path, tmp_path / "m.satchel", recipe="keep", **options))
    found = {(w["encoding"], w["group"]) for w in program.weights if len(w["shape"]) == 2}
    encoding = OWN_ENCODINGS[kind][0]
    assert found == {(encoding.kind, encoding.group)}
    assert program.metadata["recipe"]["kept"].endswith(f" {kind}")
    for name, parameter in model.named_parameters():
        stored, wanted = program.weight(name), parameter.detach().numpy()
        largest = 0.0 if kind in EXACT else 2**-11 * float(np.abs(wanted).max())
        np.testing.assert_allclose(stored, wanted, rtol=0, atol=largest, err_msg=name)
    errors = program.metadata["weight_error"].values()
    assert all(error == 0 if kind in EXACT else 0 < error < 4e-4 for error in errors)
    wanted = logits_of(model, TOKENS)
    for way, got in both_ways(Path(program.path)).items():
        assert relative_difference(got, wanted) < 2e-3, way


@pytest.mark.parametrize("random_model", ["q5_0", "q5_1", "q4_k", "q5_k", "q6_k"], indirect=True)
def test_other_targets_have_whole_bytes_and_nibbles(
    random_model: tuple[str, Path, Any], tmp_path: Path
) -> None:
    """Where a target does not read packed bits, the same codes lie in an encoding that it knows."""
    kind, path, model = random_model
    options = {"target": "vulkan", "context": 64, "prefill_ar_len": 32}
    program = satchel.load(satchel.export(path, tmp_path / "m.satchel", recipe="keep", **options))
    found = {(w["encoding"], w["group"]) for w in program.weights if len(w["shape"]) == 2}
    plain = OWN_ENCODINGS[kind][0].plain
    assert found == {(plain.kind, plain.group)}
    for name, parameter in model.named_parameters():
        stored, wanted = program.weight(name), parameter.detach().numpy()
        largest = 0.0 if kind in ("q5_0", "q5_1") else 2**-11 * float(np.abs(wanted).max())
        np.testing.assert_allclose(stored, wanted, rtol=0, atol=largest, err_msg=name)
