"""LoRA adapters, merged and apart, against transformers' models with the product added."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import satchel
from exporter.lora_files import add_lora, write_lora
from exporter.test_export_prequantized_gguf import write as write_gguf
from models.family_check import BLOCK, CONTEXT, PREFILL, TOKENS, TOLERANCE, both_ways
from satchel.benchmark.lookahead import decode
from satchel.errors import CheckpointError, ConfigError, RecipeError
from satchel.exporter import ExportOptions, prepare_export
from satchel.llm.session import Session
from support.tiny_models import logits_of, tiny_model, write_checkpoint

OPTIONS: dict[str, Any] = {"recipe": "fp32", "context": CONTEXT, "prefill_ar_len": BLOCK}
Q_PROJ = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def checkpoint(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("base") / "m", model)


def logits_through(session: Session) -> np.ndarray[Any, Any]:
    return np.concatenate(list(session.logits_of(TOKENS.tolist())))


@pytest.mark.parametrize("model_type", ["llama", "phi3", "glm"])
def test_merged_and_apart_are_what_peft_computes(tmp_path: Path, model_type: str) -> None:
    """Phi-3 has q, k and v in one tensor, GLM interleaved rows."""
    model = tiny_model(model_type, head_dim=16, pad_token_id=0)
    folder = write_checkpoint(tmp_path / "m", model)
    targets = ("qkv_proj", "gate_up_proj") if model_type == "phi3" else ("q_proj", "down_proj")
    lora = write_lora(tmp_path / "lora", model, targets)
    plain = logits_of(model, TOKENS)
    wanted = logits_of(add_lora(copy.deepcopy(model), lora), TOKENS)
    assert np.abs(wanted - plain).max() > 1
    merged = satchel.export(folder, tmp_path / "merged.satchel", lora=[lora], **OPTIONS)
    for way, got in both_ways(merged).items():
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE, err_msg=way)
    apart = satchel.export(folder, tmp_path / "apart.satchel", adapters={"fr": lora}, **OPTIONS)
    session = Session(satchel.load(apart), threads=2)
    for adapter, expected in ((None, plain), ("fr", wanted), (None, plain)):
        session.use_adapter(adapter)
        assert session.position == 0
        got = logits_through(session)
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE, err_msg=str(adapter))
        session.rewind(0)


def test_two_adapters_share_the_weights(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    one = write_lora(tmp_path / "one", model, seed=1)
    two = write_lora(tmp_path / "two", model, ("k_proj",), seed=2, rank=8)
    alone = satchel.load(satchel.export(checkpoint, tmp_path / "a.satchel", context=CONTEXT))
    adapters = {"one": one, "two": two}
    both = satchel.export(checkpoint, tmp_path / "b.satchel", adapters=adapters, context=CONTEXT)
    program = satchel.load(both, verify=True)
    assert [m["name"] for m in program.methods] == [
        *("kv_forward", "prefill_forward", "lookahead_forward"),
        *("kv_forward@one", "prefill_forward@one", "lookahead_forward@one"),
        *("kv_forward@two", "prefill_forward@two", "lookahead_forward@two"),
        "lookahead_accept",
    ]
    base = {w["name"]: w["digest"] for w in alone.weights}
    found = {w["name"]: w for w in program.weights}
    assert all(found[name]["digest"] == digest for name, digest in base.items())
    added = [w for name, w in found.items() if name not in base]
    assert len(added) == 2 * (3 + 1) * 2  # layers, targets, a and b
    assert {w["encoding"] for w in added} == {"matrix_f16"}
    assert program.metadata["adapters"] == ["one", "two"]
    assert program.metadata["parameters"] == alone.metadata["parameters"]


def test_lookahead_with_an_adapter(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora", model)
    path = satchel.export(checkpoint, tmp_path / "a.satchel", adapters={"x": lora}, **OPTIONS)
    texts = []
    for adapter in (None, "x"):
        session = Session(satchel.load(path), adapter=adapter)
        _, wanted, _ = decode(session, [5, 6, 5], 40, "off", None)
        _, tokens, stats = decode(session, [5, 6, 5], 40, "on", None)
        assert tokens == wanted and stats.branches and stats.guessing_steps > 0
        texts.append(tokens)
    assert texts[0] != texts[1]


def test_apart_from_quantised_weights(tmp_path: Path) -> None:
    """The float branch beside codes that are kept: the sum of both, to 16-bit activations."""
    model = tiny_model("llama")
    path = write_gguf(tmp_path, model, "Q8_0")
    lora = write_lora(tmp_path / "lora", model, alpha=1)  # its numbers are exact in 16 bits
    options = {**OPTIONS, "kv_bits": 32}
    plain = satchel.export(path, tmp_path / "p.satchel", lora=[lora], **options)
    kept = satchel.export(
        path, tmp_path / "k.satchel", adapters={"x": lora}, **{**options, "recipe": "keep"}
    )
    wanted = both_ways(plain)["prefill"][:PREFILL]
    got = logits_through(Session(satchel.load(kept), adapter="x"))[:PREFILL]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-3)


def test_merging_rounds_once(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora", model)
    merged = satchel.load(
        satchel.export(checkpoint, tmp_path / "a.satchel", recipe="8da4w", lora=[lora])
    )
    folder = write_checkpoint(tmp_path / "m", add_lora(copy.deepcopy(model), lora))
    whole = satchel.load(satchel.export(folder, tmp_path / "b.satchel", recipe="8da4w"))
    for weight in whole.weights:
        off = np.abs(merged.weight(weight["name"]) - whole.weight(weight["name"]))
        # The sums differ in their last bits, which may move a code that lies on a border.
        assert (off > 1e-4).mean() < 1e-3, weight["name"]
    assert merged.metadata["provenance"]["merged"] == ["lora"]


def test_scale_of_rslora_and_of_patterns(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "a", model, use_rslora=True)
    job = prepare_export(checkpoint, ExportOptions(lora=(str(lora),)))
    assert {p.scale for p in job.opened.adapters.merged[0].parts.values()} == {6 / math.sqrt(4)}
    lora = write_lora(tmp_path / "b", model, alpha_pattern={"down_proj": 2}, rank_pattern={"x": 1})
    job = prepare_export(checkpoint, ExportOptions(lora=(str(lora),)))
    scales = {
        name.split(".")[-2]: p.scale for name, p in job.opened.adapters.merged[0].parts.items()
    }
    assert scales == {"q_proj": 1.5, "v_proj": 1.5, "down_proj": 0.5}


def test_an_adapter_is_chosen_when_answering(checkpoint: Path, model: Any, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora", model)
    path = satchel.export(checkpoint, tmp_path / "m.satchel", adapters={"fr": lora}, **OPTIONS)
    llm = satchel.LLM(path)
    assert llm.adapters == ["fr"]

    def text() -> str:
        return llm.generate("ab", raw=True, max_new_tokens=12).finish().text

    plain = text()
    llm.use_adapter("fr")
    other = text()
    assert other != plain
    assert (
        satchel.LLM(path, adapter="fr").generate("ab", raw=True, max_new_tokens=12).finish().text
        == other
    )
    llm.use_adapter(None)
    assert text() == plain
    with pytest.raises(ConfigError, match="has no adapter 'de'") as caught:
        llm.use_adapter("de")
    assert caught.value.advice == "It has fr, none."


BAD_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"peft_type": "IA3"}, "of type 'IA3', not LORA"),
    ({"use_dora": True}, "use_dora is True"),
    ({"bias": "all"}, "bias is 'all'"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save is"),
    ({"r": 8}, "has the rank 4, and adapter_config.json says 8"),
    ({"r": 0}, "field r is 0"),
    ({"lora_alpha": "2"}, "lora_alpha is '2'"),
]


@pytest.mark.parametrize(("change", "message"), BAD_CONFIGS)
def test_configurations_that_are_not_read(
    model: Any, checkpoint: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    lora = write_lora(tmp_path / "lora", model, **{k: v for k, v in change.items() if k != "r"})
    config = json.loads((lora / "adapter_config.json").read_text()) | change
    (lora / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        prepare_export(checkpoint, ExportOptions(lora=(str(lora),)))


def _rename(tensors: dict[str, torch.Tensor], old: str, new: str) -> None:
    tensors[new] = tensors.pop(old)


BAD_TENSORS: dict[str, tuple[Any, str]] = {
    "another model": (
        lambda t: t.update({f"{Q_PROJ}.lora_B.weight": torch.zeros(96, 4)}),
        r"changes model.layers.0.self_attn.q_proj.weight of shape \[96, 64\], and the model has",
    ),
    "another layer": (
        lambda t: [
            _rename(t, f"{Q_PROJ}.lora_{p}.weight", f"base_model.model.other.lora_{p}.weight")
            for p in "AB"
        ],
        "changes other.weight of shape .*, and the model has none",
    ),
    "half of a pair": (lambda t: t.pop(f"{Q_PROJ}.lora_A.weight"), "do not fit together"),
    "an embedding": (
        lambda t: t.update({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(1)}),
        "lora_embedding_A is not a part of a linear layer",
    ),
    "nothing": (lambda t: t.clear(), "has no tensors in it"),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_adapters_of_another_model(model: Any, checkpoint: Path, tmp_path: Path, name: str) -> None:
    change, message = BAD_TENSORS[name]
    lora = write_lora(tmp_path / "lora", model)
    tensors = load_file(lora / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, lora / "adapter_model.safetensors")
    for options in (ExportOptions(lora=(str(lora),)), ExportOptions(adapters={"x": str(lora)})):
        with pytest.raises(CheckpointError, match=message):
            prepare_export(checkpoint, options)


def test_what_is_refused(model: Any, checkpoint: Path, tmp_path: Path) -> None:
    lora = str(write_lora(tmp_path / "lora", model))
    with pytest.raises(CheckpointError, match="missing is not a folder"):
        prepare_export(checkpoint, ExportOptions(lora=(str(tmp_path / "missing"),)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="adapter_config.json cannot be read"):
        prepare_export(checkpoint, ExportOptions(lora=(str(tmp_path / "empty"),)))
    with pytest.raises(RecipeError, match="cannot be merged into weights that are kept"):
        prepare_export(checkpoint, ExportOptions("keep", lora=(lora,)))
    for name in ("none", "a@b", "", "a b"):
        with pytest.raises(ConfigError, match="is not a name for an adapter"):
            ExportOptions(adapters={name: lora})


def test_the_model_that_an_adapter_names(model: Any, tmp_path: Path) -> None:
    from satchel.checkpoints.adapter import open_adapter

    adapter = open_adapter(write_lora(tmp_path / "lora", model))
    tensors: dict[str, Any] = {}
    with pytest.raises(CheckpointError, match="made for someone/tiny, and this is some/other"):
        adapter.check_fits(tensors, "some/other")
    with pytest.raises(CheckpointError, match="the model has none"):  # the name fits
        adapter.check_fits(tensors, "mirror/Tiny")
    adapter.file.close()
