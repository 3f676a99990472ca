"""Hugging Face folders: safetensors and pytorch_model.bin, whole and sharded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_files import arrays, assert_same, tiny_model
from safetensors.torch import save_file

from satchel.checkpoints import open_checkpoint
from satchel.errors import CheckpointError


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(tie_word_embeddings=True)


def folder_with_config(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **changes}))
    return folder


def write_one(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    save_file(tensors, folder / "model.safetensors")
    return folder_with_config(folder)


def test_a_saved_model_is_read_bit_for_bit(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.format == "safetensors"
        assert checkpoint.config == json.loads((tmp_path / "config.json").read_text())
        assert checkpoint.generation == json.loads(
            (tmp_path / "generation_config.json").read_text()
        )
        assert_same(checkpoint, arrays(model))


def test_shards_are_read_through_their_index(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with open_checkpoint(tmp_path) as checkpoint:
        assert_same(checkpoint, arrays(model))


def test_a_safetensors_file_uses_the_config_beside_it(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    renamed = (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    for path in (renamed, tmp_path):
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.config["hidden_size"] == 64
            assert_same(checkpoint, arrays(model))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_number_formats_become_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.randn(37, 5).to(dtype)
    scalar = torch.tensor(2.5).to(dtype)
    write_one(tmp_path, {"w": values, "scalar": scalar, "empty": values[:0]})
    with open_checkpoint(tmp_path) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read("w"), values.float().numpy())
        part = checkpoint.read("w", slice(10, 20))
        np.testing.assert_array_equal(part, values[10:20].float().numpy())
        assert checkpoint.read("scalar").shape == () and checkpoint.read("scalar") == 2.5
        assert checkpoint.read("empty").shape == (0, 5)


def test_a_type_that_is_no_weight_names_the_tensor(tmp_path: Path) -> None:
    write_one(tmp_path, {"position_ids": torch.arange(4), "w": torch.ones(2)})
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.tensors["position_ids"].dtype == "i64"
        with pytest.raises(CheckpointError, match="tensor position_ids has the type i64"):
            checkpoint.read("position_ids")


def test_missing_shards_and_tensors_are_all_named(tmp_path: Path) -> None:
    folder_with_config(tmp_path)
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    shards = {"a": "one.safetensors", "b": "two.safetensors", "c": "three.safetensors"}
    index.write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(CheckpointError, match=r"lacks shards .* three.safetensors, two"):
        open_checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": dict.fromkeys("abc", "one.safetensors")}))
    with pytest.raises(CheckpointError, match=r"lacks tensors .* b \(in one.safetensors\), c"):
        open_checkpoint(tmp_path)


def test_an_index_may_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    folder_with_config(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"tensor a is in '\.\./other\.safetensors'"):
        open_checkpoint(tmp_path)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="weight_map is missing"):
        open_checkpoint(tmp_path)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    write_one(tmp_path, {"w": torch.ones(4, 3), "v": torch.ones(3)})
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="not a valid safetensors file"):
            open_checkpoint(tmp_path)


def test_a_name_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    entry = '"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    header = f"{{{entry},{entry}}}".encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    folder_with_config(tmp_path)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        open_checkpoint(tmp_path)


def test_config_problems_are_named(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="does not hold a JSON object"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="field model_type is missing"):
        open_checkpoint(tmp_path)
    folder_with_config(tmp_path, quantization_config={"quant_method": "fp8"})
    with pytest.raises(CheckpointError, match=r"already quantised \(fp8\)"):
        open_checkpoint(tmp_path)


def test_pytorch_model_bin_is_read_without_running_its_pickle(model: Any, tmp_path: Path) -> None:
    folder_with_config(tmp_path)
    torch.save(
        {name: torch.from_numpy(values) for name, values in arrays(model).items()},
        tmp_path / "pytorch_model.bin",
    )
    for path in (tmp_path, tmp_path / "pytorch_model.bin"):
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.format == "pytorch"
            assert_same(checkpoint, arrays(model))


def test_tokenizer_is_found_by_its_content(tmp_path: Path) -> None:
    write_one(tmp_path, {"w": torch.ones(2)})
    assert open_checkpoint(tmp_path).tokenizer is None
    tokenizer = tmp_path / "tokenizer.model"
    tokenizer.write_bytes(b"IQ== 0\nIg== 1\n")
    found = open_checkpoint(tmp_path).tokenizer
    assert found is not None and (found.kind, found.path) == ("tiktoken", tokenizer)
    tokenizer.write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00")
    found = open_checkpoint(tmp_path).tokenizer
    assert found is not None and (found.kind, found.path) == ("sentencepiece", tokenizer)
    (tmp_path / "tokenizer.json").write_text("{}")
    found = open_checkpoint(tmp_path).tokenizer
    assert found is not None and (found.kind, found.path) == ("huggingface", tmp_path)
