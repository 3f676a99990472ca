"""What an export makes: names, plan, metadata, weights, and the same bytes every time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from exporter.small_checkpoint import write_small
from satchel.checkpoints import open_checkpoint
from satchel.encodings.encoding import Encoding
from satchel.exporter import ExportOptions, prepare_export
from satchel.exporter.context import chosen_context, tell_context
from satchel.exporter.weights import WeightPacker
from satchel.graph.ir import DType, RowSource, Weight, largest
from satchel.models import build_model
from satchel.remarks import Remark
from support.arrays import normal
from support.programs import stored_values
from support.real_configs import real_config


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("exporter") / "TinyLlama")


RECIPES: list[dict[str, Any]] = [
    {"recipe": "fp32"},
    {"recipe": "fp16", "mode": "kv"},
    {"recipe": "8da4w"},
    {"recipe": "8da4w", "group_size": 64, "embedding": (8, 0), "head_bits": 8},
]


@pytest.mark.parametrize("options", RECIPES, ids=str)
def test_the_plan_tells_the_size(checkpoint: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    job = prepare_export(checkpoint, ExportOptions(**options))
    plan = job.plan()
    real = job.run(tmp_path / "m.satchel").stat().st_size
    assert abs(plan.file_size - real) <= 0.01 * real
    program = satchel.load(tmp_path / "m.satchel", verify=True)
    assert plan.weights == len(program.weights)
    assert plan.methods == tuple(m["name"] for m in program.methods)
    assert plan.parameters == program.metadata["parameters"]
    assert plan.to_dict()["file_size_bytes"] == plan.file_size


def test_parameters_are_counted_once(tmp_path: Path) -> None:
    folder = write_small(
        tmp_path / "m", weights_of={"tie_word_embeddings": True}, tie_word_embeddings=True
    )
    job = prepare_export(folder, ExportOptions(head_bits=8))
    sizes = [t.shape for t in job.portable.checkpoint.tensors.values()]
    assert job.portable.parameters == sum(int(np.prod(shape)) for shape in sizes)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"recipe": "fp32"}, "TinyLlama-cpu-fp32.satchel"),
        ({}, "TinyLlama-cpu-8da4w-g32.satchel"),
        ({"group_size": 64}, "TinyLlama-cpu-8da4w-g64.satchel"),
    ],
)
def test_the_default_name(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert satchel.export(checkpoint, **options) == Path(name)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_file_named_model_gets_its_folders_name(checkpoint: Path) -> None:
    job = prepare_export(checkpoint / "model.safetensors", ExportOptions())
    assert job.name == "TinyLlama"


def test_the_context_is_capped_by_the_model(checkpoint: Path, tmp_path: Path) -> None:
    for asked, wanted in ((2048, 64), (48, 48)):
        path = satchel.export(checkpoint, tmp_path / f"{asked}.satchel", context=asked)
        program = satchel.load(path)
        assert program.metadata["context"] == wanted
        assert program.metadata["prefill_ar_len"] == wanted
        assert {s["shape"][1] for s in program.states} == {wanted}


def test_the_context_is_the_models_own_if_its_caches_are_small() -> None:
    def chosen(name: str, **changed: Any) -> int:
        model = build_model({**real_config(name), **changed})
        return chosen_context(ExportOptions(), model, DType.f16)

    assert chosen("smollm2-135m") == 8192
    assert chosen("llama3_2-1b") == 65536  # of 131072, with 32 kB for each token
    assert chosen("qwen3-4b") == 14336  # with 144 kB
    assert chosen("phi4-mini") == 4096  # where its other frequencies begin
    assert chosen("llama3_2-1b", max_position_embeddings=512) == 512


@pytest.mark.parametrize("cache", [DType.u8, DType.f16, DType.f32])
@pytest.mark.parametrize("name", ["llama3_2-1b", "gemma3-270m", "codegen2-1b", "glm-edge-1_5b"])
def test_what_a_token_takes_in_the_caches(name: str, cache: DType) -> None:
    model = build_model(real_config(name))
    states = model.method("kv_forward", 1, 8, cache).states.values()
    sizes = [math.prod(largest(state.shape)) * state.dtype.size for state in states]
    assert model.cache_bytes(cache) * 8 == sum(sizes)


def test_a_context_that_is_not_the_models_own_is_told(checkpoint: Path) -> None:
    with pytest.warns(Remark, match="The context is 64 tokens, all that the model was made for"):
        prepare_export(checkpoint, ExportOptions(context=65))
    with pytest.warns(Remark, match="The context is 2048 tokens, and with the option context up"):
        tell_context(ExportOptions(), 8192, 2048)


def test_modes(checkpoint: Path, tmp_path: Path) -> None:
    hybrid = satchel.load(satchel.export(checkpoint, tmp_path / "h.satchel", prefill_ar_len=16))
    kv = satchel.load(satchel.export(checkpoint, tmp_path / "k.satchel", mode="kv"))
    names = ["kv_forward", "prefill_forward", "lookahead_forward", "lookahead_accept"]
    assert [m["name"] for m in hybrid.methods] == names
    assert hybrid.methods[1]["inputs"][0]["shape"] == [("S", 16)]
    assert [m["name"] for m in kv.methods] == ["kv_forward"]
    assert kv.metadata["prefill_ar_len"] is None
    assert hybrid.metadata["lookahead"] is None
    ahead = satchel.export(checkpoint, tmp_path / "l.satchel", mode="lookahead", ngram=3, gcap=2)
    assert satchel.load(ahead).metadata["lookahead"] == {"ngram": 3, "window": 4, "gcap": 2}
    # Weights are stored once for all methods, so the others cost next to nothing.
    assert hybrid.size - kv.size < 20_000


def test_metadata_tells_what_was_done(checkpoint: Path, tmp_path: Path) -> None:
    program = satchel.load(satchel.export(checkpoint, tmp_path / "m.satchel", head_bits=8))
    metadata = program.metadata
    assert (metadata["name"], metadata["architecture"]) == ("TinyLlama", "llama")
    assert metadata["recipe"]["description"] == (
        "8da4w, group size 32, embedding 4,32, head 8 bits, KV cache f16"
    )
    origin = {"format": "safetensors", "file": "TinyLlama", "merged": []}
    assert metadata["provenance"] == origin
    assert metadata["placement"]["fallbacks"] == []
    assert metadata["tokenizer"]["eos_ids"] == [257]
    errors = metadata["weight_error"]
    assert set(errors) == {
        "model.embed_tokens.weight",
        "lm_head.weight",
        *(f"model.layers.*.self_attn.{p}_proj.weight" for p in "qkvo"),
        *(f"model.layers.*.mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
    }
    assert 0.05 < errors["model.embed_tokens.weight"] < 0.12  # 4 bits of normal numbers
    assert 0.002 < errors["lm_head.weight"] < 0.01  # 8 bits


@pytest.mark.parametrize("options", RECIPES, ids=str)
def test_two_exports_give_the_same_bytes(
    checkpoint: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    one = satchel.export(checkpoint, tmp_path / "1.satchel", threads=1, **options)
    two = satchel.export(checkpoint, tmp_path / "2.satchel", threads=2, **options)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("options", RECIPES, ids=str)
def test_stored_weights_are_the_checkpoints(
    checkpoint: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """As the plain numpy packer would store them."""
    program = satchel.load(satchel.export(checkpoint, tmp_path / "m.satchel", **options))
    tensors = open_checkpoint(checkpoint)
    for info in program.weights:
        if info["name"].startswith("rope"):
            continue
        encoding = Encoding(info["encoding"], info["group"])
        array = tensors.read(info["name"].removesuffix("#head"))
        np.testing.assert_array_equal(program.weight(info["name"]), stored_values(array, encoding))


def test_progress_reaches_the_end(checkpoint: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    satchel.export(
        checkpoint,
        tmp_path / "m.satchel",
        progress=lambda _, done, total: seen.append((done, total)),
    )
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(done) and len(set(totals)) == 1
    assert done[-1] == totals[0]


class _Rows:
    """A checkpoint of one tensor that remembers how much was read at once."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.largest = 0

    def read(self, _name: str, rows: slice | None = None) -> np.ndarray:
        block = self.array[rows or slice(None)]
        self.largest = max(self.largest, block.nbytes)
        return block


def _packed(rows: _Rows, weight: Weight, encoding: Encoding) -> bytes:
    packer = WeightPacker(rows, threads=2)  # type: ignore[arg-type]
    return b"".join(bytes(block) for block in packer.encode(weight, encoding))


@pytest.mark.parametrize("kind", ["matrix_f32", "matrix_f16", "matrix_q4", "matrix_q8"])
def test_blocks_of_rows_give_the_same_bytes_as_the_whole(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = normal(100, 64)
    weight = Weight("w", (100, 64), "linear", RowSource("w"))
    encoding = Encoding(kind, 32 if "q" in kind else 0)
    whole = _packed(_Rows(array), weight, encoding)
    monkeypatch.setattr("satchel.exporter.weights.BLOCK_BYTES", 33 * 64 * 4)
    rows = _Rows(array)
    assert _packed(rows, weight, encoding) == whole
    assert rows.largest == 32 * 64 * 4  # whole tiles of 16 rows


def test_a_weight_may_be_some_rows_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.exporter.weights.BLOCK_BYTES", 16 * 8 * 4)
    array = normal(90, 8)
    source = RowSource("w", ranges=((50, 71), (3, 40), (89, 90)), add=1.0)
    wanted = np.concatenate([array[50:71], array[3:40], array[89:90]]) + 1
    weight = Weight("w", wanted.shape, "linear", source)
    got = _packed(_Rows(array), weight, Encoding("matrix_f32"))
    np.testing.assert_array_equal(
        Encoding("matrix_f32").decode(
            np.frombuffer(got, np.uint8), np.zeros(0, np.uint8), wanted.shape
        ),
        wanted,
    )
