"""Drivers in software, and the validation layers, in processes of their own: a sample of the op
table's rows always, and all of them with

    python -m pytest tests/backends/vulkan/test_vulkan_software.py -m all_rows
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import satchel
from backends.vulkan.rows import ROWS, WITH_STATES
from backends.vulkan.test_vulkan_choice import write_tied
from models.model_rows import ROWS as MODELS
from support.tiny_llm import write_tiny_llm
from support.tiny_models import tiny_model, write_checkpoint

_TESTS = Path(__file__).parents[2]
_LAYERS = ("/usr/share/vulkan/explicit_layer.d", "/etc/vulkan/explicit_layer.d")
_OPS = sorted({*ROWS, *(case.op for case in WITH_STATES)})

# The layers see what commands wait for. Shaders that take turns wait for one another by counters,
# which the layers cannot know, so that turns are left out where waiting is watched.
WATCHED = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
WAITING_WATCHED = {
    **WATCHED,
    "SATCHEL_VULKAN_WITHOUT": "turns",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
}

# A prompt, a fork that writes to a shared page, tokens that the device chooses, a tree, caches that
# are read and written; and a model of images.
_SESSIONS = """
import sys
import numpy as np
from satchel.benchmark.lookahead import decode
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.sampling import SamplingOptions
from satchel.llm.session import Session
from satchel.runtime.program import Program
from satchel._native import TokenRule
for path in sys.argv[1:]:
    program = Program(path, target="vulkan")
    if not program.is_language_model:
        method = program.instance(threads=1).method("forward")
        for seed in range(2):
            method(np.random.default_rng(seed).standard_normal((2, 3, 32, 32), np.float32))
        continue
    session = Session(program)
    session.feed(list(range(3, 83)))
    fork = session.fork(70)
    fork.feed([1, 2, 3])
    instance = session.instance
    taken = instance.open_sequence()
    instance.write_sequence(taken, instance.read_sequence(session.sequence, 80))
    assert len(session.chain(5, SamplingOptions(0.7), [0.3, 0.6] * 5)) == 10
    both = [instance.open_sequence() for _ in range(2)]
    penalized = TokenRule(repetition_penalty=1.1, text=[2])
    for rules in ([TokenRule(), TokenRule(0.7)], [TokenRule(0.7, 5, 0.9), penalized]):
        instance.method("prefill_forward").run_chain([1, 2], [0, 0], both, rules, [[0.5] * 2] * 2)
    instance.reset()
    decode(Session(Program(path, target="vulkan")), [5, 6, 7] * 4, 30, "on", LookaheadSizes())
assert "VkLayer_khronos_validation" in open("/proc/self/maps").read()
print("done")
"""


@pytest.fixture
def layers() -> None:
    if not any(list(Path(folder).glob("VkLayer_khronos_validation*")) for folder in _LAYERS):
        pytest.skip("there are no validation layers: apt-get install vulkan-validationlayers")


def driver(manifest: Path, without: str = "") -> dict[str, str]:
    names = {"VK_ICD_FILENAMES": str(manifest), "VK_DRIVER_FILES": str(manifest)}
    return {**names, "SATCHEL_VULKAN_WITHOUT": without} if without else names


def run(words: list[str], environment: dict[str, str]) -> str:
    """What it prints, which for the layers is all that they have to say."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **environment},
        cwd=_TESTS,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def check_rows(wanted: str, environment: dict[str, str], device: str = "") -> None:
    """One line, of the device that was meant."""
    (line,) = run(["-m", "backends.vulkan.rows", wanted], environment).splitlines()
    assert line.endswith(" rows") and not line.endswith(" 0 rows") and device in line, line


@pytest.mark.parametrize("without", ["turns", "integer_dot"])
def test_a_sample_of_rows_on_a_weak_device(without: str, weak: Path) -> None:
    check_rows("sample", driver(weak, without), "SwiftShader")


def test_a_sample_of_rows_is_watched(layers: None, device: dict[str, Any]) -> None:
    check_rows("sample", WAITING_WATCHED)


def test_a_sample_of_rows_on_a_weak_device_is_watched(layers: None, weak: Path) -> None:
    check_rows("sample", {**driver(weak), **WAITING_WATCHED}, "SwiftShader")


def test_a_weak_device_chooses_as_the_host(weak: Path, tmp_path: Path) -> None:
    program = write_tied(tmp_path, 1100)
    (line,) = run(["-m", "backends.vulkan.choices", str(program)], driver(weak)).splitlines()
    assert line.startswith("SwiftShader")


@pytest.mark.all_rows
@pytest.mark.parametrize("without", ["turns", "integer_dot"])
@pytest.mark.parametrize("op", _OPS)
def test_all_rows_on_a_weak_device(op: str, without: str, weak: Path) -> None:
    check_rows(op, driver(weak, without), "SwiftShader")


@pytest.mark.all_rows
@pytest.mark.parametrize("op", _OPS)
def test_all_rows_are_watched(op: str, layers: None, device: dict[str, Any]) -> None:
    check_rows(op, WAITING_WATCHED)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two language models and a mixture of experts, and two models of images."""
    from backends.vulkan.test_vulkan_vision import made as module_of

    folder = tmp_path_factory.mktemp("watched")
    tiny = write_tiny_llm(folder / "tiny")
    sizes = {"context": 160, "prefill_ar_len": 80}
    made = [
        satchel.export(tiny, folder / f"{recipe}.satchel", recipe=recipe, kv_bits=bits, **sizes)
        for recipe, bits in (("fp16", 16), ("8da4w", 8))
    ]
    row = next(row for row in MODELS if row.model_type == "qwen3_moe")
    mixture = write_checkpoint(folder / "mixture", tiny_model(row.model_type, **row.config))
    made.append(satchel.export(mixture, folder / "mixture.satchel", recipe="8da4w", **sizes))
    for name, recipe in (("patches", "fp32"), ("bottlenecks", "int8")):
        module, x = module_of(name)
        calibration = [(x,)] if recipe == "int8" else None
        path = folder / f"{name}.satchel"
        made.append(satchel.export(module, (x,), path, recipe=recipe, calibration=calibration))
    return [str(path) for path in made]


@pytest.mark.parametrize("watched", [WATCHED, WAITING_WATCHED], ids=["turns", "waiting"])
def test_the_validation_layers_have_nothing_to_say(
    watched: dict[str, str], layers: None, device: dict[str, Any], programs: list[str]
) -> None:
    assert run(["-c", _SESSIONS, *programs], watched) == "done\n"


@pytest.mark.all_rows
def test_the_validation_layers_have_nothing_to_say_of_a_weak_device(
    layers: None, weak: Path, programs: list[str]
) -> None:
    assert run(["-c", _SESSIONS, *programs], {**driver(weak), **WAITING_WATCHED}) == "done\n"
