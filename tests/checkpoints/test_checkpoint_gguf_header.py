"""The GGUF header: equal to the gguf library's reading, and safe with hostile files."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from checkpoint_files import tiny_model, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.checkpoints import gguf_header, open_checkpoint
from satchel.checkpoints.gguf_header import GgufHeader, read_gguf_header
from satchel.checkpoints.weightfile import WeightFile
from satchel.errors import CheckpointError

VALUES: dict[str, Any] = {
    "x.text": "grüße",
    "x.u32": 7,
    "x.float": 0.5,
    "x.bool": True,
    "x.tokens": ["a", "▁b", "", "😀" * 30],
    "x.scores": [0.5, -1.25],
    "x.types": [1, -3, 6],
    "x.flags": [True, False],
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("x.text", VALUES["x.text"])
    writer.add_uint32("x.u32", 7)
    writer.add_float32("x.float", 0.5)
    writer.add_bool("x.bool", True)
    for key in ("x.tokens", "x.scores", "x.types", "x.flags"):
        writer.add_array(key, VALUES[key])
    # Sizes that end on an alignment, so that every byte of the file counts.
    writer.add_tensor("token_embd.weight", np.ones((2, 64), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read(path: Path) -> GgufHeader:
    file = WeightFile(path)
    try:
        return read_gguf_header(file)
    finally:
        file.close()


def test_header_equals_the_gguf_librarys_reading(small: Path) -> None:
    header = read(small)
    assert {key: header.metadata[key] for key in VALUES} == VALUES
    reader = gguf.GGUFReader(small)
    assert header.data_offset == reader.data_offset
    for tensor in reader.tensors:
        ours = header.tensors[tensor.name]
        assert ours.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert ours.type == tensor.tensor_type
        assert header.data_offset + ours.offset == tensor.data_offset


def test_a_buffer_that_ends_in_a_string_reads_on(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(small)
    for size in (1, 7, 100):
        monkeypatch.setattr(gguf_header, "READ_BYTES", size)
        assert read(small) == whole


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    model = tiny_model(**sizes, num_attention_heads=2, num_key_value_heads=1, head_dim=8)
    path = write_gguf(tmp_path / "model.gguf", model)
    open_checkpoint(path).close()
    whole = path.read_bytes()
    cut = tmp_path / "cut.gguf"
    header_size = read(path).data_offset
    for size in (
        *range(header_size + 64),
        *range(header_size + 64, len(whole), 64),
        len(whole) - 1,
    ):
        cut.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"cut\.gguf"):
            open_checkpoint(cut)


@given(position=st.integers(0, 400), value=st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_is_an_error_or_another_header(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    """Never a crash, a hang or another exception."""
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "whole.gguf"
    if not whole.exists():
        write_gguf(whole, tiny_model(), metadata={"tokenizer.ggml.tokens": ["a", "b"] * 20})
    data = bytearray(whole.read_bytes())
    data[position] = value
    changed = folder / "changed.gguf"
    changed.write_bytes(data)
    try:
        with open_checkpoint(changed) as checkpoint:
            assert checkpoint.config["vocab_size"] > 0
    except CheckpointError as error:
        assert "changed.gguf" in str(error)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(tensors: int, pairs: int, rest: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def array(kind: int, count: int) -> bytes:
    return text("k") + struct.pack("<IIQ", 9, kind, count)


F32_TENSOR = text("t") + struct.pack("<IQIQ", 1, 4, 0, 0)
HOSTILE = {
    "does not start as a GGUF file": b"GGML" + bytes(60),
    "GGUF version 1": header(0, 0, b"", version=1),
    "GGUF version 50331648": header(0, 0, b"", version=3 << 24),  # big-endian
    "announces 18446744073709551615 key-value pairs": header(0, 2**64 - 1, b""),
    "0 key-value pairs and 1099511627776 tensors": header(2**40, 0, b""),
    "ends within its header": header(0, 1, struct.pack("<Q", 2**63)),
    "more than any model needs": header(0, 1, array(8, 2**62)),
    "announces 8000000 strings under k": header(0, 1, array(8, 8_000_000)),
    "announces 8000000 values under k": header(0, 1, array(4, 8_000_000)),
    "unknown type 99 under k": header(0, 1, text("k") + struct.pack("<I", 99)),
    "unknown type 9 under k": header(0, 1, array(9, 1) + bytes(16)),  # an array of arrays
    "has the key k twice": header(0, 2, (text("k") + struct.pack("<IB", 0, 1)) * 2),
    "text under k that is not UTF-8": header(0, 1, array(8, 1) + struct.pack("<QB", 1, 255)),
    "text in a key that is not UTF-8": header(0, 1, struct.pack("<QB", 1, 255) + bytes(9)),
    "has the tensor t twice": header(2, 0, F32_TENSOR * 2 + bytes(64)),
    "tensor t with 9 dimensions": header(1, 0, text("t") + struct.pack("<I", 9) + bytes(99)),
    "tensor t with an empty dimension": header(
        1, 0, text("t") + struct.pack("<IQIQ", 1, 0, 0, 0) + bytes(64)
    ),
    "offset 3, which is not aligned": header(
        1, 0, text("t") + struct.pack("<IQIQ", 1, 4, 0, 3) + bytes(64)
    ),
    "alignment 12": header(0, 1, text("general.alignment") + struct.pack("<II", 4, 12)),
    "key general.architecture is missing": header(0, 0, bytes(8)),
    "architecture 'xyz', which is not read": header(
        0, 1, text("general.architecture") + struct.pack("<I", 8) + text("xyz")
    ),
}


@pytest.mark.parametrize("problem", HOSTILE)
def test_hostile_headers_are_refused_at_once(tmp_path: Path, problem: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[problem])
    start = time.perf_counter()
    with pytest.raises(CheckpointError, match=problem):
        open_checkpoint(path)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    ("dimensions", "kind", "offset", "problem"),
    [
        ((64, 2**40), 0, 0, "ends at byte"),
        ((64, 40), 0, 2**62, "ends at byte"),
        ((33,), 2, 0, "rows of 33 values, which do not fill blocks of 32"),
        ((256,), 40, 0, "type NVFP4, which is not supported"),
        ((256,), 999, 0, "type number 999, which is not supported"),
    ],
)
def test_tensors_are_checked_against_the_file(
    tmp_path: Path, dimensions: tuple[int, ...], kind: int, offset: int, problem: str
) -> None:
    described = text("t") + struct.pack("<I", len(dimensions))
    described += struct.pack(f"<{len(dimensions)}Q", *dimensions)
    described += struct.pack("<IQ", kind, offset)
    architecture = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    path = tmp_path / "hostile.gguf"
    path.write_bytes(header(1, 1, architecture + described + bytes(256)))
    with pytest.raises(CheckpointError, match=rf"tensor t .*{problem}"):
        open_checkpoint(path)


def test_a_large_vocabulary_is_read_quickly(tmp_path: Path) -> None:
    tokens = [f"token{number}" for number in range(100_000)]
    path = tmp_path / "model.gguf"
    write_gguf(path, tiny_model(), metadata={"tokenizer.ggml.tokens": tokens})
    start = time.process_time()
    header = read(path)
    assert time.process_time() - start < 0.5
    assert header.metadata["tokenizer.ggml.tokens"] == tokens
