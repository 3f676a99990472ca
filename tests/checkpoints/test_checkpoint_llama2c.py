"""llama2.c's .bin files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import arrays, assert_same, tiny_model, write_llama2c

from satchel.checkpoints import open_checkpoint
from satchel.errors import CheckpointError

STORIES = Path(__file__).parents[3] / "shared" / "data" / "llm" / "stories260K"


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_is_read_bit_for_bit(tmp_path: Path, tied: bool) -> None:
    model = tiny_model(tie_word_embeddings=tied)
    path = write_llama2c(tmp_path / "model.bin", model)
    (tmp_path / "tokenizer.bin").write_bytes(b"\x01\x00\x00\x00")
    for source in (path, tmp_path):
        with open_checkpoint(source) as checkpoint:
            assert checkpoint.format == "llama2c"
            assert_same(checkpoint, arrays(model))
            for field, value in checkpoint.config.items():
                if field not in ("rope_theta", "rope_scaling"):  # one field in transformers 5
                    assert getattr(model.config, field) == value, field
            assert checkpoint.tokenizer is not None
            assert checkpoint.tokenizer.kind == "llama2c"
            assert checkpoint.tokenizer.path == tmp_path / "tokenizer.bin"


def test_the_tokenizer_of_this_vocabulary_comes_first(tmp_path: Path) -> None:
    path = write_llama2c(tmp_path / "model.bin", tiny_model(tie_word_embeddings=True))
    assert open_checkpoint(path).tokenizer is None
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")
    found = open_checkpoint(path).tokenizer
    assert found is not None and found.kind == "sentencepiece"
    for name in ("tokenizer.bin", "tok40.bin"):
        (tmp_path / name).write_bytes(b"")
        found = open_checkpoint(path).tokenizer
        assert found is not None and found.path.name == name


def test_header_and_size_are_checked(tmp_path: Path) -> None:
    path = write_llama2c(tmp_path / "model.bin", tiny_model(tie_word_embeddings=True))
    whole = path.read_bytes()
    for wrong in (whole[:-4], whole + bytes(4)):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=f"has {len(wrong)} bytes where its header asks"):
            open_checkpoint(path)
    for fields in (
        [0] * 7,
        [64, 96, -2, 4, 2, 40, 128],
        [64, 96, 2, 3, 2, 40, 128],
        [2**31 - 1] * 7,
    ):
        path.write_bytes(struct.pack("<7i", *fields) + whole[28:])
        with pytest.raises(CheckpointError, match="does not start with the header"):
            open_checkpoint(path)
    path.write_bytes(whole[:27])
    with pytest.raises(CheckpointError, match="does not start with the header"):
        open_checkpoint(path)
    path.write_bytes(struct.pack("<I", 0x616B3432) + whole[4:])
    with pytest.raises(CheckpointError, match="newer layouts"):
        open_checkpoint(path)


@pytest.mark.skipif(not STORIES.is_dir(), reason="the stories260K model is not here")
def test_a_real_model_is_read() -> None:
    with open_checkpoint(STORIES) as checkpoint:
        assert checkpoint.config["vocab_size"] == 512
        assert checkpoint.tokenizer is not None
        assert checkpoint.tokenizer.path.name == "tok512.bin"
        assert sum(checkpoint.read(name).size for name in checkpoint.tensors) == 260_032
        assert np.isfinite(checkpoint.read("model.embed_tokens.weight")).all()


def test_stories_end_where_the_next_one_would_begin(tmp_path: Path) -> None:
    """llama2.c trains on stories one after the other, each begun by token 1."""
    path = write_llama2c(tmp_path / "model.bin", tiny_model(tie_word_embeddings=True))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.generation["eos_token_id"] == [1, 2]
