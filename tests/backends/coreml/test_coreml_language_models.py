"""Language models as Core ML packages mean what the reference computes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import satchel
from models.model_rows import ROWS, ModelRow
from support.tiny_models import logits_of, tiny_model, write_checkpoint

pytest.importorskip("coremltools", reason="pip install 'satchel[coreml]'")
from backends.coreml.package_run import (
    TOKENS,
    both,
    prepare,
    reference,
    with_states,
    without_states,
    worst,
)
from satchel.backends.coreml.blobs import BlobFile
from satchel.backends.coreml.palettes import palette_of
from satchel.backends.weight_rows import plain_bytes
from satchel.errors import ConfigError

HALVES = 0.01  # what angles, constants and caches of 16 bits cost, beside the largest logit
# Those of a long text are of more tokens than there are here.
FIRST_ROWS = {row.model_type: row for row in reversed(ROWS) if row.name != "long"}
EXPERTS = [row for row in FIRST_ROWS.values() if "num_experts_per_tok" in row.config]
CHOSEN = [row for row in FIRST_ROWS.values() if row not in EXPERTS]
CHOSEN += [row for row in ROWS if row.name in ("soft_caps", "five_to_one")]


def size_of(package: Path) -> int:
    return sum(path.stat().st_size for path in package.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("ml") / "m", tiny_model("llama"))


@pytest.mark.parametrize("row", {row.id: row for row in CHOSEN}.values(), ids=lambda row: row.id)
def test_every_family(tmp_path: Path, row: ModelRow) -> None:
    model = tiny_model(row.model_type, **row.config)
    job = prepare(write_checkpoint(tmp_path / "m", model), "coreml", "fp16")
    program, package = both(job, tmp_path / "made")
    assert size_of(package) == job.plan().file_size
    found = with_states(package)
    assert worst(found, reference(program)) < HALVES
    assert worst(found, logits_of(model, TOKENS)) < 2 * HALVES  # weights have 16 bits, too


@pytest.mark.parametrize("row", EXPERTS, ids=lambda row: row.id)
def test_mixtures_of_experts_are_refused(tmp_path: Path, row: ModelRow) -> None:
    checkpoint = write_checkpoint(tmp_path / "m", tiny_model(row.model_type, **row.config))
    with pytest.raises(ConfigError, match="mixtures of experts.*target cpu or vulkan"):
        prepare(checkpoint, "coreml", "fp16")


@pytest.mark.parametrize("recipe", ["fp16", "16a8w", "8da4w"])
def test_the_neural_engines_layout_and_weights_of_few_bits(
    tmp_path: Path, checkpoint: Path, recipe: str
) -> None:
    job = prepare(checkpoint, "coreml:iOS18", recipe, units="ane")
    program, package = both(job, tmp_path / "made")
    assert size_of(package) == job.plan().file_size
    assert worst(with_states(package), reference(program)) < HALVES
    plain = prepare(checkpoint, "coreml:iOS18", recipe)
    program, package = both(plain, tmp_path / "plain")
    assert worst(with_states(package), reference(program)) < HALVES


@pytest.mark.parametrize("units", ["all", "ane"])
def test_palettes(tmp_path: Path, checkpoint: Path, units: str) -> None:
    """Every weight is the nearest of its palette's numbers, and the logits are those of such."""
    job = prepare(checkpoint, "coreml", "fp16", units=units, palettes=True)
    program, package = both(job, tmp_path / "made")
    assert size_of(package) == job.plan().file_size

    def weight(name: str) -> Any:
        array = program.weight(name)
        if array.ndim != 2:
            return array.astype(np.float16).astype(np.float32)
        found = np.empty_like(array)
        for at in range(0, len(array), 16):
            palette = palette_of(array[at : at + 16]).astype(np.float32)
            apart = np.abs(array[at : at + 16, :, None] - palette)
            found[at : at + 16] = palette[apart.argmin(axis=2)]
        error = ((found - array) ** 2).mean() / (array**2).mean()
        assert error < 0.015  # plain 4-bit groups of 32 have about as much
        return found

    assert worst(with_states(package), reference(program, weight)) < HALVES


@pytest.mark.parametrize("system", ["iOS16", "iOS17"])
@pytest.mark.parametrize("recipe", ["fp16", "16a8w"])
def test_older_systems_are_given_the_caches(
    tmp_path: Path, checkpoint: Path, system: str, recipe: str
) -> None:
    program, package = both(prepare(checkpoint, f"coreml:{system}", recipe), tmp_path / "made")
    assert worst(without_states(package), reference(program)) < HALVES


def test_both_functions_share_their_weights(tmp_path: Path, checkpoint: Path) -> None:
    def weights(**more: Any) -> int:
        path = satchel.export(
            checkpoint, tmp_path / "m.mlpackage", target="coreml", overwrite=True, **more
        )
        return (path / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size

    tables = 4096  # of whole numbers, for blocks
    assert weights() - weights(mode="kv") < tables
    assert (tmp_path / "m.tokenizer.json").exists()


def test_a_large_head_is_computed_in_parts(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.backends.coreml.export.MOST_ROWS", 100)
    job = prepare(checkpoint, "coreml", "8da4w", units="ane")
    program, package = both(job, tmp_path / "made")
    assert worst(with_states(package), reference(program)) < HALVES
    from satchel.backends.coreml.interpreter import PackageInterpreter

    shapes = [
        op.outputs[0].shape
        for op in PackageInterpreter(package).program.functions["kv"].operations
        if op.op_type == "conv"
    ]
    assert max(shape[1] for shape in shapes) == 100
    assert [shape[1] for shape in shapes][-3:] == [100, 100, 72]


def test_coremltools_reads_the_package(tmp_path: Path, checkpoint: Path) -> None:
    import coremltools as ct

    path = satchel.export(checkpoint, tmp_path / "m.mlpackage", target="coreml", recipe="8da4w")
    model = ct.models.MLModel(str(path), skip_model_load=True)
    functions = {f.name: f for f in model.get_spec().description.functions}
    assert set(functions) == {"kv", "prefill"}
    assert [i.name for i in functions["kv"].input] == ["tokens", "position"]
    assert len(functions["kv"].state) == 4
    copied = tmp_path / "copied.mlpackage"
    model.save(str(copied))  # its own writer takes the package over
    weights = "Data/com.apple.CoreML/weights/weight.bin"
    assert (copied / weights).read_bytes() == (path / weights).read_bytes()


def test_the_file_of_weights_is_what_coremltools_writes(tmp_path: Path) -> None:
    storage = pytest.importorskip("coremltools.libmilstoragepython")
    from satchel.backends.coreml import blobs

    rng = np.random.default_rng(0)
    halves = rng.standard_normal((5, 7)).astype(np.float16)
    bytes_, whole = rng.integers(-128, 128, 33).astype(np.int8), np.arange(9, dtype=np.int32)
    nibbles = rng.integers(-8, 8, 64).astype(np.int8)
    theirs = storage._BlobStorageWriter(str(tmp_path / "theirs.bin"))
    offsets = [
        theirs.write_fp16_data(halves.reshape(-1).view(np.uint16)),
        theirs.write_int8_data(bytes_),
        theirs.write_int4_data(nibbles),
        theirs.write_int32_data(whole),
    ]
    del theirs
    packed = (nibbles[::2] & 15) | (nibbles[1::2] << 4)
    ours = BlobFile()
    found = [
        ours.add("a", blobs.FLOAT16, plain_bytes(halves)),
        ours.add("b", blobs.INT8, plain_bytes(bytes_)),
        ours.add("c", blobs.INT4, plain_bytes(packed.astype(np.uint8))),
        ours.add("d", blobs.INT32, plain_bytes(whole)),
    ]
    ours.write(tmp_path / "ours.bin", None, lambda _: None)  # type: ignore[arg-type]
    assert found == offsets
    written = (tmp_path / "theirs.bin").read_bytes()
    mine = (tmp_path / "ours.bin").read_bytes()
    assert mine[: len(written)] == written and not any(mine[len(written) :])
    assert len(mine) == ours.size


def test_exporting_needs_no_torch(tmp_path: Path, checkpoint: Path) -> None:
    import subprocess
    import sys

    script = f"""
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, NoTorch())
import satchel
satchel.export({str(checkpoint)!r}, {str(tmp_path / "m.mlpackage")!r}, target="coreml")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    shutil.rmtree(tmp_path / "m.mlpackage")
