"""The same weights in formats that keep rotary weights in pairs give the same logits."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from checkpoints.checkpoint_files import arrays, meta_params, meta_state, write_llama2c, write_meta
from models.family_check import BLOCK, CONTEXT, TOKENS, TOLERANCE, both_ways
from support.tiny_models import VOCABULARY, logits_of, tiny_model, write_tokenizer


def _meta(folder: Path, model: Any) -> Path:
    folder.mkdir()
    write_meta(folder, meta_state(arrays(model), model.config), meta_params(model.config))
    write_tokenizer(folder)
    return folder


def _llama2c(folder: Path, model: Any) -> Path:
    folder.mkdir()
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
    pieces += [b"%c" % (97 + i) for i in range(VOCABULARY - len(pieces))]
    data = struct.pack("<i", max(map(len, pieces)))
    data += b"".join(struct.pack("<fi", 0.0, len(piece)) + piece for piece in pieces)
    (folder / "tokenizer.bin").write_bytes(data)
    return write_llama2c(folder / "model.bin", model)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("write", [_meta, _llama2c])
def test_logits_are_those_of_transformers(tmp_path: Path, write: Any, tied: bool) -> None:
    model = tiny_model("llama", tie_word_embeddings=tied)
    program = satchel.export(
        write(tmp_path / "checkpoint", model),
        tmp_path / "model.satchel",
        recipe="fp32",
        context=CONTEXT,
        prefill_ar_len=BLOCK,
    )
    wanted = logits_of(model, TOKENS)
    for way, got in both_ways(program).items():
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE, err_msg=way)
