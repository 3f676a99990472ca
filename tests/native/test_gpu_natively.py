"""GPUs without Python: the same tokens as Python's, chosen on the device, by satchel-run and C."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

import pytest

import satchel
from native.conftest import Runner
from satchel import _native
from satchel.backends.vulkan import list_devices
from satchel.runtime.program import Program
from support.tiny_llm import write_tiny_llm

DEVICES, MISSING = list_devices()
pytestmark = pytest.mark.skipif(not DEVICES, reason=f"no Vulkan device: {MISSING}")

PROMPT = "once upon a time"
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0, "repetition_penalty": 1.0},
    "penalty": {"temperature": 0.0, "repetition_penalty": 1.3},
    "drawn": {"temperature": 0.9, "top_k": 0, "top_p": 1.0, "seed": 7},
    "cut": {"temperature": 0.9, "top_k": 20, "top_p": 0.8, "min_p": 0.01, "seed": 7},
}


def words_of(way: dict[str, Any]) -> list[str]:
    return [w for name, value in way.items() for w in (f"--{name.replace('_', '-')}", str(value))]


def answer(runner: Runner, *words: str) -> dict[str, Any]:
    done = runner("run", *words, "--raw", "--max-new-tokens", "40", "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("way", WAYS)
def test_the_tokens_are_pythons(way: str, runner: Runner, program: Path) -> None:
    options = WAYS[way]
    got = answer(runner, str(program), PROMPT, "--target", "vulkan", *words_of(options))
    llm = satchel.LLM(program, target="vulkan")
    wanted = llm.generate(PROMPT, raw=True, max_new_tokens=40, **options).finish()
    assert got["tokens"] == list(wanted.tokens) and got["text"] == wanted.text
    assert got["kernels"].startswith("vulkan on ")
    assert "the chip chooses" in got["lookahead"]["off_because"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers in floats, and a context that is soon full."""
    folder = tmp_path_factory.mktemp("gpu")
    checkpoint = write_tiny_llm(folder / "tiny", num_hidden_layers=3)
    return satchel.export(checkpoint, folder / "p.satchel", recipe="fp32", context=64)


def test_a_full_context_slides_as_on_the_cpu(runner: Runner, small: Path) -> None:
    words = [str(small), PROMPT, "--raw", "--max-new-tokens", "150", "--on-context-full", "slide"]
    texts = []
    for target in ("vulkan", "cpu"):
        done = runner("run", *words, "--lookahead", "off", "--target", target, "--json")
        assert done.returncode == 0, done.stderr
        texts.append(json.loads(done.stdout))
    assert texts[0]["context_slides"] > 1
    assert texts[0]["tokens"] == texts[1]["tokens"]


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_the_first_layers_run_there(layers: int, runner: Runner, small: Path) -> None:
    """Where not all of them do, the host chooses the tokens."""
    got = answer(runner, str(small), PROMPT, "--target", f"vulkan:0:{layers}")
    wanted = answer(runner, str(small), PROMPT, "--lookahead", "off")
    assert got["tokens"] == wanted["tokens"]
    chooses = "the chip chooses" in (got["lookahead"]["off_because"] or "")
    assert chooses == (layers == 3)


def test_a_file_for_gpus_runs_there_unless_told(runner: Runner, tmp_path: Path) -> None:
    checkpoint = write_tiny_llm(tmp_path / "tiny")
    program = satchel.export(checkpoint, tmp_path / "p.satchel", target="vulkan", context=64)
    assert answer(runner, str(program), PROMPT)["kernels"].startswith("vulkan on ")
    assert "vulkan" not in answer(runner, str(program), PROMPT, "--target", "cpu")["kernels"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("vulkan:", "there is no target 'vulkan:'"),
        ("vulkan:x", "there is no target 'vulkan:x'"),
        ("vulkan:0:1:2", "there is no target"),
        ("vulkan:99", "there is no Vulkan device 99"),
        ("vulcan", "is not for vulcan"),
    ],
)
def test_targets_that_are_none(target: str, message: str, runner: Runner, program: Path) -> None:
    done = runner("run", program, PROMPT, "--target", target)
    assert done.returncode != 0 and message in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_bench_measures_it(runner: Runner, program: Path) -> None:
    done = runner(
        "bench", program, "--target", "vulkan", "--prompt-tokens", "8", "--new-tokens", "4",
        "--runs", "1", "--warmup", "0", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["decode_tok_s"] > 0 and result["kernels"].startswith("vulkan on ")
    assert result["emulated"] == (DEVICES[0]["type"] == "software")
    limit = _native.vulkan.measure(0)["read_bytes_s"]
    assert 0.1 < result["read_bandwidth_bytes_s"] / limit < 10
    assert result["device_memory_bytes"] > Program(program).size / 2


def test_c_opens_a_gpu(device: Path, program: Path) -> None:
    class Options(ctypes.Structure):
        _fields_ = [
            ("size", ctypes.c_size_t),
            ("threads", ctypes.c_uint32),
            ("cache_memory", ctypes.c_uint64),
            ("verify", ctypes.c_uint32),
            ("target", ctypes.c_char_p),
        ]

    library = ctypes.CDLL(str(next((device / "lib").glob("libsatchel.*"))))
    library.satchel_error_message.restype = ctypes.c_char_p
    for target, status in ((b"vulkan", 0), (b"vulkan:99", None)):
        options, model = Options(ctypes.sizeof(Options), target=target), ctypes.c_void_p()
        got = library.satchel_model_open(
            os.fsencode(program), ctypes.byref(options), ctypes.byref(model)
        )
        if status == 0:
            assert got == 0, library.satchel_error_message()
            library.satchel_model_close(model)
        else:
            assert got != 0 and b"no Vulkan device 99" in library.satchel_error_message()
