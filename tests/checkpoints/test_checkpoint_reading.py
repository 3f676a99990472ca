"""What all readers share: rows, memory, closing, and telling formats apart."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_files import (
    arrays,
    meta_params,
    meta_state,
    tiny_model,
    write_gguf,
    write_llama2c,
    write_meta,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from satchel.checkpoints import Checkpoint, open_checkpoint
from satchel.checkpoints.stored import CHUNK_VALUES
from satchel.errors import CheckpointError, TokenizerError
from satchel.llm.tokenizer_sources.backend import load_backend

FORMATS = ("safetensors", "meta", "gguf", "llama2c")
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(tie_word_embeddings=False)


@pytest.fixture(scope="module")
def checkpoints(model: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    """The same model in every format."""
    folder = tmp_path_factory.mktemp("formats")
    model.save_pretrained(folder / "safetensors")
    write_meta(folder / "meta", meta_state(arrays(model), model.config), meta_params(model.config))
    write_gguf(folder / "model.gguf", model)
    write_llama2c(folder / "model.bin", model)
    paths = (folder / "safetensors", folder / "meta", folder / "model.gguf", folder / "model.bin")
    return dict(zip(FORMATS, map(open_checkpoint, paths), strict=True))


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_model_is_the_same_in_every_format(
    checkpoints: dict[str, Checkpoint], model: Any, format: str
) -> None:
    checkpoint = checkpoints[format]
    expected = arrays(model)
    assert checkpoint.format == format
    assert sorted(checkpoint.tensors) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(checkpoint.read(name), values, err_msg=name)
    fields = ("hidden_size", "intermediate_size", "num_attention_heads", "rms_norm_eps")
    for field in (*fields, "num_key_value_heads", "tie_word_embeddings", "vocab_size"):
        assert checkpoint.config[field] == getattr(model.config, field), field


@given(
    format=st.sampled_from(FORMATS),
    name=st.sampled_from([Q_PROJ, "lm_head.weight", "model.norm.weight"]),
    rows=st.slices(70).filter(lambda rows: rows.step in (None, 1)),
)
@settings(max_examples=200, deadline=None)
def test_rows_are_sliced_as_numpy_does(
    checkpoints: dict[str, Checkpoint],
    model: Any,
    format: str,
    name: str,
    rows: slice,
) -> None:
    got = checkpoints[format].read(name, rows)
    assert got.dtype == np.float32 and got.flags.c_contiguous
    np.testing.assert_array_equal(got, arrays(model)[name][rows])


def test_rows_are_read_in_order_only(checkpoints: dict[str, Checkpoint]) -> None:
    with pytest.raises(ValueError, match="the step must be 1, not 2"):
        checkpoints["safetensors"].read("lm_head.weight", slice(0, 4, 2))


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_tensor_names_the_nearest(
    checkpoints: dict[str, Checkpoint], format: str
) -> None:
    with pytest.raises(CheckpointError, match=r"no tensor model\.norm\.wait.*model\.norm\.weight"):
        checkpoints[format].read("model.norm.wait")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_is_the_result_and_little_more(tmp_path: Path, dtype: torch.dtype) -> None:
    rows, columns = 4096, 1024
    save_file({"w": torch.ones(rows, columns, dtype=dtype)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with open_checkpoint(tmp_path) as checkpoint:
        for wanted in (slice(0, 128), slice(None)):
            tracemalloc.start()
            values = checkpoint.read("w", wanted)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert values.nbytes <= peak < values.nbytes + 8 * CHUNK_VALUES


def test_interleaved_and_quantised_rows_need_little_more_than_the_result(tmp_path: Path) -> None:
    sizes = {"hidden_size": 512, "head_dim": 128, "num_hidden_layers": 1, "vocab_size": 64}
    model = tiny_model(**sizes, num_attention_heads=16, num_key_value_heads=2)
    name = "model.layers.0.self_attn.q_proj.weight"  # 2048 x 512
    for kind in ("F32", "Q8_0", "Q4_1"):
        with open_checkpoint(write_gguf(tmp_path / f"{kind}.gguf", model, kind=kind)) as checkpoint:
            checkpoint.read("model.norm.weight")
            checkpoint.read(name, slice(0, 1))  # imports what it needs
            tracemalloc.start()
            values = checkpoint.read(name)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < values.nbytes + 24 * CHUNK_VALUES


def test_only_the_asked_rows_are_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"w": torch.ones(1000, 16)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with open_checkpoint(tmp_path) as checkpoint:
        from satchel.checkpoints.weightfile import WeightFile

        read_into, counts = WeightFile.read_into, []

        def counting(self: WeightFile, offset: int, target: Any) -> None:
            counts.append(target.nbytes)
            read_into(self, offset, target)

        monkeypatch.setattr(WeightFile, "read_into", counting)
        checkpoint.read("w", slice(500, 510))
        assert counts == [10 * 16 * 4]


def test_reading_after_closing_is_an_error(model: Any, tmp_path: Path) -> None:
    with open_checkpoint(write_gguf(tmp_path / "model.gguf", model)) as checkpoint:
        checkpoint.read("model.norm.weight")
    with pytest.raises(CheckpointError, match="is closed"):
        checkpoint.read("model.norm.weight")


def test_a_file_that_shrinks_meanwhile_is_an_error(model: Any, tmp_path: Path) -> None:
    path = write_llama2c(tmp_path / "model.bin", model)
    with open_checkpoint(path) as checkpoint:
        with path.open("r+b") as file:
            file.truncate(1000)
        with pytest.raises(CheckpointError, match="ends before byte"):
            checkpoint.read("lm_head.weight")


def test_paths_that_are_no_checkpoint_say_what_is(model: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing does not exist"):
        open_checkpoint(tmp_path / "missing")
    with pytest.raises(CheckpointError, match=r"no checkpoint in it.*Hugging Face folder"):
        open_checkpoint(tmp_path)
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    with pytest.raises(CheckpointError, match=r"notes\.txt is not a checkpoint"):
        open_checkpoint(other)
    write_gguf(tmp_path / "a.gguf", model)
    assert open_checkpoint(tmp_path).format == "gguf"
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"several checkpoints in it: a\.gguf, b\.gguf"):
        open_checkpoint(str(tmp_path))


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": "{}", "model.safetensors": POINTER}, "safetensors is only a pointer"),
        ({"model.gguf": POINTER}, r"model\.gguf is only a pointer of Git LFS.*git lfs pull"),
        ({"adapter_config.json": "{}", "adapter_model.safetensors": "x"}, "is an adapter, not"),
        ({"a.safetensors": "x", "b.safetensors": "x"}, r"2 \.safetensors files .* no index"),
        ({"model.onnx": "x"}, r"Give the path of the file: .*model\.onnx"),
    ],
)
def test_folders_that_are_taken_for_checkpoints(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path)


def test_a_program_and_a_broken_link_are_no_checkpoints(tmp_path: Path) -> None:
    program = tmp_path / "m.satchel"
    program.write_bytes(b"SATCHEL\0" + bytes(64))
    with pytest.raises(CheckpointError, match=r"m\.satchel is a program already"):
        open_checkpoint(program)
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blobs" / "gone")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is a link to nothing"):
        open_checkpoint(tmp_path)


def test_a_pointer_beside_a_good_checkpoint_is_no_matter(model: Any, tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", model)
    (tmp_path / "tf_model.bin").write_text(POINTER)
    assert open_checkpoint(tmp_path).format == "gguf"


def test_a_pointer_for_a_tokenizer() -> None:
    with pytest.raises(TokenizerError, match="only a pointer of Git LFS"):
        load_backend(POINTER, "tokenizer.json")
