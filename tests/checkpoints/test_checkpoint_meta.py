"""Meta's .pth files, llama2.c's training files, and pickles that must never run."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_files import (
    META_NAMES,
    TINY,
    arrays,
    assert_same,
    meta_params,
    meta_state,
    tiny_model,
    write_meta,
)
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from satchel.checkpoints import meta_config, open_checkpoint
from satchel.errors import CheckpointError
from satchel.models import build_model


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(tie_word_embeddings=False)


def test_names_shapes_and_values_are_hugging_faces(model: Any, tmp_path: Path) -> None:
    state = meta_state(arrays(model), model.config) | {"rope.freqs": torch.ones(8)}
    write_meta(tmp_path, state, meta_params(model.config))
    for path in (tmp_path, tmp_path / "consolidated.00.pth"):
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.format == "meta"
            assert_same(checkpoint, arrays(model))
            expected = model.config.to_dict()
            for field in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"):
                assert checkpoint.config[field] == expected[field]
            assert checkpoint.config["num_key_value_heads"] == 2
            assert checkpoint.config["tie_word_embeddings"] is False
            assert checkpoint.config["rope_scaling"] is None


def test_half_split_rows_give_metas_attention_scores(tmp_path: Path) -> None:
    """Meta rotates pairs of neighbours as complex numbers; the scores must be the same."""
    heads, size, length = 2, 8, 5
    torch.manual_seed(1)
    wq, wk, x = torch.randn(16, 16), torch.randn(16, 16), torch.randn(length, 16)
    angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size))

    def meta_rotated(rows: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex((x @ rows.T).view(length, heads, size // 2, 2))
        turned = pairs * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.view_as_real(turned).reshape(length, heads, size)

    expected = torch.einsum("ihd,jhd->hij", meta_rotated(wq), meta_rotated(wk))
    state = {
        "tok_embeddings.weight": torch.randn(4, 16),
        "layers.0.attention.wq.weight": wq,
        "layers.0.attention.wk.weight": wk,
        "layers.0.feed_forward.w1.weight": torch.randn(8, 16),
    }
    write_meta(tmp_path, state, {"dim": 16, "n_layers": 1, "n_heads": heads})
    with open_checkpoint(tmp_path) as checkpoint:
        q, k = (
            (x @ torch.from_numpy(checkpoint.read(f"model.layers.0.self_attn.{part}.weight")).T)
            .view(1, length, heads, size)
            .transpose(1, 2)
            for part in ("q_proj", "k_proj")
        )
    both = torch.cat([angles, angles], -1)[None]
    q, k = apply_rotary_pos_emb(q, k, both.cos(), both.sin())
    torch.testing.assert_close(q[0] @ k[0].transpose(1, 2), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shared", [True, False])
def test_a_repeated_embedding_is_a_tied_head(model: Any, tmp_path: Path, shared: bool) -> None:
    state = meta_state(arrays(model), model.config)
    embedding = state["tok_embeddings.weight"]
    state["output.weight"] = embedding if shared else embedding.clone()
    write_meta(tmp_path, state, meta_params(model.config))
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.config["tie_word_embeddings"] is True
        assert "lm_head.weight" not in checkpoint.tensors


@pytest.mark.parametrize(("hidden", "factor"), [(2048, 32.0), (3072, 32.0), (4096, 8.0)])
def test_scaled_rope_is_llama3s(tmp_path: Path, hidden: int, factor: float) -> None:
    state = {
        "tok_embeddings.weight": torch.zeros(2, hidden, dtype=torch.bfloat16),
        "layers.0.feed_forward.w1.weight": torch.zeros(2, hidden, dtype=torch.bfloat16),
    }
    params = {"dim": hidden, "n_layers": 1, "n_heads": 16, "rope_theta": 500000.0}
    write_meta(tmp_path, state, params | {"use_scaled_rope": True, "vocab_size": 2})
    config = open_checkpoint(tmp_path).config
    assert config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert config["max_position_embeddings"] == 131072
    assert config["rope_theta"] == 500000.0
    write_meta(tmp_path, state, params)
    assert open_checkpoint(tmp_path).config["max_position_embeddings"] == 8192


def training_checkpoint(model: Any, sizes: str = "model_args") -> dict[str, Any]:
    """What llama2.c's train.py saves; ``sizes`` is where it says those of the model."""
    state = meta_state(arrays(model), model.config)
    args = {**meta_params(model.config), "vocab_size": 40, "max_seq_len": 128, "dropout": 0.0}
    for name in ("norm_eps", "rope_theta"):
        del args[name]
    return {
        "model": OrderedDict((f"_orig_mod.{name}", tensor) for name, tensor in state.items()),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 1e-4}]},
        sizes: args,
        "iter_num": 7,
        "best_val_loss": torch.tensor(1.5),
        "config": {"compile": True, "dtype": "bfloat16", "betas": (0.9, 0.95), "seed": None},
    }


@pytest.mark.parametrize("sizes", ["model_args", "args"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "params.json"])
def test_a_training_file_of_llama2c_carries_its_own_configuration(
    model: Any, tmp_path: Path, beside: bool, sizes: str
) -> None:
    torch.save(training_checkpoint(model, sizes), tmp_path / "stories110M.pt")
    (tmp_path / "tok40.bin").write_bytes(b"")
    if beside:  # as the Qualcomm guide writes it: without the key-value heads and the context
        params = meta_params(model.config) | {"vocab_size": 40, "norm_eps": 1e-05}
        del params["n_kv_heads"]
        (tmp_path / "params.json").write_text(json.dumps(params))
    with open_checkpoint(tmp_path / "stories110M.pt") as checkpoint:
        assert checkpoint.format == "llama2c"
        assert checkpoint.config["max_position_embeddings"] == 128
        assert checkpoint.config["num_key_value_heads"] == 2
        assert checkpoint.config["rms_norm_eps"] == 1e-5
        assert checkpoint.tokenizer is not None and checkpoint.tokenizer.kind == "llama2c"
        assert checkpoint.generation["eos_token_id"] == [1, 2]
        assert_same(checkpoint, arrays(model))


def test_params_beside_a_training_file_count_more_than_its_own(model: Any, tmp_path: Path) -> None:
    saved = training_checkpoint(model)
    del saved["model_args"]
    torch.save(saved, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match="neither a params.json beside it nor model_args"):
        open_checkpoint(tmp_path / "ckpt.pt")
    params = meta_params(model.config) | {"max_seq_len": 64, "norm_eps": 1e-4}
    (tmp_path / "params.json").write_text(json.dumps(params))
    with open_checkpoint(tmp_path / "ckpt.pt") as checkpoint:
        assert checkpoint.config["max_position_embeddings"] == 64
        assert checkpoint.config["rms_norm_eps"] == 1e-4


@pytest.mark.parametrize("family", ["qwen3", "qwen2"])
def test_what_was_converted_for_executorch_is_the_same_model(tmp_path: Path, family: str) -> None:
    """Qwen in Meta's names, but with rotary rows as they were (use_hf_rope)."""
    model = tiny_model(family, tie_word_embeddings=True, head_dim=16)
    new = {**META_NAMES, "self_attn.q_norm": "attention.q_norm_fn"}
    new |= {"self_attn.k_norm": "attention.k_norm_fn"}
    state = {}
    for old, values in arrays(model).items():
        name = old
        for theirs, metas in new.items():
            name = name.replace(theirs, metas)
        state[name] = torch.from_numpy(values.copy())
    state["output.weight"] = state["tok_embeddings.weight"]
    params = meta_params(model.config) | {
        "use_hf_rope": True,
        "head_dim": 16,
        "use_qk_norm": family == "qwen3",
        "attention_qkv_bias": family == "qwen2",
        "rope_theta": 1000000.0,
    }
    torch.save(state, tmp_path / f"{family}_meta.pth")
    (tmp_path / "params.json").write_text(json.dumps(params))
    with open_checkpoint(tmp_path / f"{family}_meta.pth") as checkpoint:
        assert checkpoint.config["model_type"] == family
        assert checkpoint.config["tie_word_embeddings"] is True
        assert_same(checkpoint, arrays(model))
        built = build_model(checkpoint.config)  # every field is one of this family's
        named = {weight.name for weight in built.method("kv_forward", 1, 16).weights()}
        assert named == set(checkpoint.tensors)


def test_a_converted_phi4_mini_is_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """convert_weights takes fused layers apart, and its params.json leaves the scaling out."""
    longrope = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    heads = TINY["num_attention_heads"]
    pairs = int(TINY["hidden_size"] // heads * 0.75) // 2
    longrope |= {"short_factor": [1.0] * pairs, "long_factor": [8.0] * pairs}
    model = tiny_model(
        "phi3",
        **{"rope_parameters": longrope, "original_max_position_embeddings": 4096},
        **{"max_position_embeddings": 131072, "tie_word_embeddings": True, "pad_token_id": 0},
    )
    config, state = model.config, {}
    query = config.num_attention_heads * (config.hidden_size // config.num_attention_heads)
    for old, values in arrays(model).items():
        name, array = old, torch.from_numpy(values.copy())
        for theirs, metas in META_NAMES.items():
            name = name.replace(theirs, metas)
        if ".qkv_proj." in name:
            key = (len(array) - query) // 2
            for part, rows in zip("qkv", array.split([query, key, key]), strict=True):
                state[name.replace("self_attn.qkv_proj", f"attention.w{part}")] = rows
        elif ".gate_up_proj." in name:
            for part, rows in zip(("w1", "w3"), array.chunk(2), strict=True):
                state[name.replace("mlp.gate_up_proj", f"feed_forward.{part}")] = rows
        else:
            state[name] = array
    state["output.weight"] = state["tok_embeddings.weight"]
    params = meta_params(config) | {"partial_rotary_factor": 0.75, "use_hf_rope": True}
    monkeypatch.setattr(meta_config, "PHI4_MINI", {n: params[n] for n in meta_config.PHI4_MINI})
    write_meta(tmp_path, state, params)
    with open_checkpoint(tmp_path) as checkpoint:
        assert_same(checkpoint, arrays(model))
        built = build_model(checkpoint.config)
        ours, theirs = built.rope, model.model.rotary_emb
        assert ours.scale == pytest.approx(theirs.attention_scaling) and ours.scale > 1.1
        assert np.allclose(ours.frequencies(4096), theirs.inv_freq.numpy())


def test_a_converted_phi_is_refused_with_what_to_give(model: Any, tmp_path: Path) -> None:
    params = meta_params(model.config) | {"partial_rotary_factor": 0.75, "use_hf_rope": True}
    write_meta(tmp_path, meta_state(arrays(model), model.config), params)
    with pytest.raises(CheckpointError, match="a converted Phi.*Hugging Face folder"):
        open_checkpoint(tmp_path)


class _Call:
    """Unpickling this would call a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("function", "name"), [(os.system, "system"), (eval, "eval"), (subprocess.Popen, "Popen")]
)
def test_a_pickle_that_would_run_code_is_refused_and_has_no_effect(
    tmp_path: Path, function: Any, name: str
) -> None:
    touched = tmp_path / "touched"
    command = f"open({str(touched)!r}, 'w')" if function is eval else f"touch {touched}"
    write_meta(tmp_path, {"w": _Call(function, command)}, {"dim": 8})  # type: ignore[dict-item]
    with pytest.raises(CheckpointError, match=rf"names \w+\.{name}, which weights do not need"):
        open_checkpoint(tmp_path)
    assert not touched.exists()


@pytest.mark.parametrize(
    "value",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # protocol 0
        pickle.dumps(_Call(os.system, "true"), 2),
        pickle.dumps(_Call(os.system, "true"), 4),
        pickle.dumps(OrderedDict, 2)[:-1] + b"(\x8c\x01atR.",  # arguments that it never has
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"\x80\x02X\x01\x00\x00\x00aQ.",  # a persistent id that is no storage
        b"\x80\x02}))s.",  # a tuple as a key
        b"\x80\x02h\x05.",  # an empty memo
        b"\x80\x020.",  # an empty stack
        b"\x80\x02}",  # no end
        b"\x80\x02" + b"\x8a\xff" + b"\x01" * 9,  # cut off
        b"",
    ],
)
def test_hostile_pickles_end_in_an_error(tmp_path: Path, value: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "consolidated.00.pth", "w") as archive:
        archive.writestr("archive/data.pkl", value)
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(CheckpointError):
        open_checkpoint(tmp_path)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    state = {"tok_embeddings.weight": torch.ones(2, 4)}
    whole = (write_meta(tmp_path, state, {"dim": 4}) / "consolidated.00.pth").read_bytes()
    for size in range(0, len(whole), 3):
        (tmp_path / "consolidated.00.pth").write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path)


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "consolidated.00.pth"
    (tmp_path / "params.json").write_text("{}")
    path.write_bytes(pickle.dumps({}))
    with pytest.raises(CheckpointError, match=r"not an archive of torch\.save"):
        open_checkpoint(tmp_path)
    with zipfile.ZipFile(path, "w"):
        pass
    with pytest.raises(CheckpointError, match=r"0 members data\.pkl"):
        open_checkpoint(tmp_path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, 2))
    with pytest.raises(CheckpointError, match="is compressed or cut off"):
        open_checkpoint(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, 2))
        archive.writestr("archive/byteorder", "big")
    with pytest.raises(CheckpointError, match="big-endian"):
        open_checkpoint(tmp_path)


def test_a_storage_that_is_too_small_names_the_tensor(tmp_path: Path) -> None:
    state = {"tok_embeddings.weight": torch.ones(2, 4)}
    original = write_meta(tmp_path, state, {"dim": 4, "n_heads": 1}) / "consolidated.00.pth"
    with zipfile.ZipFile(original) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(original, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data[:-4] if name.endswith("/data/0") else data)
    with pytest.raises(CheckpointError, match=r"tensor tok_embeddings\.weight .* does not fit"):
        open_checkpoint(tmp_path)
    with zipfile.ZipFile(original, "w") as archive:
        for name, data in members.items():
            if not name.endswith("/data/0"):
                archive.writestr(name, data)
    with pytest.raises(CheckpointError, match=r"lacks the data of tensor tok_embeddings\.weight"):
        open_checkpoint(tmp_path)


def test_problems_of_content_are_named(model: Any, tmp_path: Path) -> None:
    state, params = meta_state(arrays(model), model.config), meta_params(model.config)
    first = "layers.0.attention.wq.weight"

    def problem(changed: dict[str, Any], changed_params: dict[str, Any]) -> str:
        write_meta(tmp_path, {**state, **changed}, {**params, **changed_params})
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(tmp_path)
        return str(caught.value)

    assert f"tensor {first} is not contiguous" in problem({first: state[first].T}, {})
    assert "tensor extra has no place" in problem({"extra": torch.ones(1)}, {})
    assert "is in it twice" in problem({f"_orig_mod.{first}": state[first]}, {})
    assert "field n_heads is missing" in problem({}, {"n_heads": None})
    assert "field dim is 'x'" in problem({}, {"dim": "x"})
    assert "into 3 heads" in problem({}, {"n_heads": 3})
    assert "vocab_size is 41" in problem({}, {"vocab_size": 41})
    gate = "layers.0.feed_forward.w1.weight"
    message = problem({gate: torch.ones(3)}, {})
    assert "model.layers.0.mlp.gate_proj.weight" in message
    torch.save([state[first]], tmp_path / "consolidated.00.pth")
    with pytest.raises(CheckpointError, match="does not hold tensors by name"):
        open_checkpoint(tmp_path)


def test_what_belongs_to_the_weights_has_to_be_there(model: Any, tmp_path: Path) -> None:
    torch.save(meta_state(arrays(model), model.config), tmp_path / "consolidated.00.pth")
    with pytest.raises(CheckpointError, match=r"neither a params\.json beside it.*params"):
        open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"neither a params\.json beside it nor"):
        open_checkpoint(tmp_path / "consolidated.00.pth")
    (tmp_path / "consolidated.01.pth").write_bytes(b"")
    with pytest.raises(CheckpointError, match="split over 2 files"):
        open_checkpoint(tmp_path)
