"""Language models on a Vulkan device: the logits of the CPU, sequences, forks and session files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import satchel
from models.family_check import TOKENS, prefill_then_decode
from models.model_rows import ROWS
from satchel.backends import find_target
from satchel.benchmark.lookahead import decode
from satchel.errors import ExecutionError
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.session import Session
from satchel.models import architectures
from satchel.program.names import SHORT_STEP
from satchel.runtime.program import Instance, Program
from support.compare import relative_difference
from support.tiny_llm import write_tiny_llm
from support.tiny_models import tiny_model, write_checkpoint

TEXT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7] * 9
# Products are added up in another order, so that now and then an activation's code is another.
TOLERANCE = {"fp32": 1e-5, "fp16": 1e-3, "16a4w": 2e-3}


def export_tiny(folder: Path, recipe: str) -> Path:
    checkpoint = write_tiny_llm(folder / "tiny")
    return satchel.export(
        checkpoint, folder / "p.satchel", recipe=recipe, context=160, prefill_ar_len=80
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_tiny(tmp_path_factory.mktemp("vulkan"), "fp16")


@pytest.mark.parametrize("recipe", ["fp32", "16a4w"])
@pytest.mark.parametrize("architecture", architectures())
def test_families_have_the_cpus_logits(
    architecture: str, recipe: str, device: dict[str, Any], tmp_path: Path
) -> None:
    """The second with shaders that multiply bytes and do several nodes at once."""
    row = next(row for row in ROWS if row.model_type == architecture)
    folder = write_checkpoint(tmp_path / row.id, tiny_model(architecture, **row.config))
    path = satchel.export(
        folder, tmp_path / "p.satchel", recipe=recipe, context=96, prefill_ar_len=32
    )
    instance = Program(path, target="vulkan").instance(threads=1)
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    want, got = (
        prefill_then_decode(Program(path, target=target), TOKENS[:74])
        for target in ("cpu", "vulkan")
    )
    assert relative_difference(got, want) < TOLERANCE[recipe]


@pytest.mark.parametrize("kv_bits", [8, 16, 32])
@pytest.mark.parametrize("recipe", ["fp16", "8da4w", "16a4w", "8a8w"])
def test_recipes_have_the_cpus_logits(
    recipe: str, kv_bits: int, device: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    path = satchel.export(
        checkpoint,
        tmp_path / "p.satchel",
        recipe=recipe,
        kv_bits=kv_bits,
        context=96,
        prefill_ar_len=32,
    )
    instance = Program(path, target="vulkan").instance(threads=1)
    assert {part.executor for part in instance.parts} == {"vulkan"}, instance.refusals
    want, got = (
        prefill_then_decode(Program(path, target=target), TOKENS[:74])
        for target in ("cpu", "vulkan")
    )
    assert relative_difference(got, want) < 2e-2


def answers(instance: Instance) -> list[NDArray[Any]]:
    """A prompt of more than a page, a fork that writes to shared pages, a rewind, all going on."""
    first = Session(instance.program, instance=instance)
    found = [first.feed(TEXT)]
    second = first.fork(70)
    found += [second.feed(TEXT[:3]), first.feed([1]), second.feed([2]), first.feed([3])]
    third = first.fork(20)
    found += [third.feed(TEXT[:50]), first.feed([4]), third.feed([5])]
    return found


@pytest.mark.parametrize("recipe", ["fp16", "16a4w"])
def test_sequences_forks_and_rewinds(recipe: str, device: dict[str, Any], tmp_path: Path) -> None:
    program = export_tiny(tmp_path, recipe)
    instances = [Program(program, target=name).instance(threads=2) for name in ("cpu", "vulkan")]
    want, got = map(answers, instances)
    for one, other in zip(got, want, strict=True):
        assert relative_difference(one, other) < TOLERANCE[recipe]
    if not instances[1].same_bits_in_blocks:
        return
    # A token has the same bits alone, in a block and in company.
    alone = Session(instances[1].program, instance=instances[1])
    alone.feed(TEXT[:70])
    np.testing.assert_array_equal(alone.feed(TEXT[:3]), got[1])


@pytest.mark.parametrize("recipe", ["fp16", "16a4w", "8da4w"])
def test_a_token_has_the_same_bits_alone_and_in_a_step_that_is_not_long(
    recipe: str, device: dict[str, Any], tmp_path: Path
) -> None:
    program = Program(export_tiny(tmp_path, recipe), target="vulkan")
    instance = program.instance()
    if not instance.same_bits_in_blocks:
        pytest.skip("cooperative matrices add up in another order")
    prefill, kv = (instance.method(name) for name in ("prefill_forward", "kv_forward"))
    positions = np.arange(SHORT_STEP)
    in_step, alone = (np.full(SHORT_STEP, instance.open_sequence()) for _ in range(2))
    together = prefill.run(TEXT[:SHORT_STEP], positions, positions, in_step)[0]
    for at, token in enumerate(TEXT[:SHORT_STEP]):
        logits = kv.run([token], [at], alone[:1])[0]
        np.testing.assert_array_equal(np.ravel(logits), together[at], err_msg=str(at))


def test_caches_move_between_devices(program: Path, device: dict[str, Any]) -> None:
    """As a conversation is kept in a file and taken up elsewhere."""
    gpu, cpu = (Program(program, target=name).instance() for name in ("vulkan", "cpu"))
    session = Session(gpu.program, instance=gpu)
    session.feed(TEXT)
    kept = gpu.read_sequence(session.sequence, len(TEXT))
    for there in (cpu, gpu):
        taken = there.open_sequence()
        there.write_sequence(taken, kept)
        for name, rows in there.read_sequence(taken, len(TEXT)).items():
            assert rows.any()
            np.testing.assert_array_equal(rows, kept[name])


def test_lookahead_gives_the_greedy_text(program: Path, device: dict[str, Any]) -> None:
    session = Session(Program(program, target="vulkan"))
    _, plain, _ = decode(session, TEXT[:20], 60, "off", None)
    _, guessed, stats = decode(session, TEXT[:20], 60, "on", LookaheadSizes())
    assert guessed == plain and len(plain) == 60
    assert stats.accepted > 0


def test_wrong_values_are_errors_and_the_device_lives_on(
    program: Path, device: dict[str, Any]
) -> None:
    kv = Program(program, target="vulkan").instance().method("kv_forward")
    good = kv.run([5], [0])[0]
    for tokens, position in (([999], 0), ([-1], 0), ([5], 160), ([5], -1)):
        with pytest.raises(ExecutionError):
            kv.run(tokens, [position])
    np.testing.assert_array_equal(kv.run([5], [0])[0], good)


def test_the_target_is_named_and_devices_are_counted(device: dict[str, Any]) -> None:
    assert find_target("vulkan").name == find_target("vulkan:0").name == "vulkan"
    assert find_target("vulkan:1").name == "vulkan:1"
    for wrong in ("vulkan:x", "vulkan:-1", "vulkan:99999"):
        with pytest.raises(satchel.SatchelError, match="there is no target"):
            find_target(wrong)


def test_a_device_that_is_not_there_is_told(program: Path, device: dict[str, Any]) -> None:
    with pytest.raises(ExecutionError, match="there is no Vulkan device 77"):
        Program(program, target="vulkan:77").instance()


def test_a_device_without_the_newer_features_has_the_same_logits(
    device: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Op by op, with the shaders that every device can run."""
    path = export_tiny(tmp_path, "16a4w")
    found = []
    for without in ("", "integer_dot,cooperative_matrix"):
        monkeypatch.setenv("SATCHEL_VULKAN_WITHOUT", without)
        session = Session(Program(path, target="vulkan"))
        found.append([session.feed(TEXT), session.feed([1]), session.feed([2])])
    for fast, plain in zip(*found, strict=True):
        assert relative_difference(fast, plain) < TOLERANCE["16a4w"]
