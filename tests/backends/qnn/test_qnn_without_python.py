"""satchel-run on the NPU's emulator: Python's tokens, without Python."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_qnn_payload import BROKEN, Change

import satchel
from satchel import _native
from satchel.backends.qnn.kit import write_kit
from satchel.backends.qnn.payload import MANIFEST
from satchel.cli.main import main
from satchel.llm.llm import LLM
from satchel.runtime.program import Program
from support import program_file as fm

pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")

DEVICE = Path(_native.__file__).parent / "device"
RUNNER = DEVICE / "bin" / "satchel-run"
CHIP = "qnn:SM8450"  # its methods share no weights, so that the emulator loads the file's binaries
OPTIONS = {"target": CHIP, "context": 48, "prefill_ar_len": 12}
MEASURED = ("--warmup", 0, "--json")
COPYING = "abcabcabcabcabc"

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


def library_folders() -> str:
    """Where pip puts the vendor's libraries."""
    found = [importlib.util.find_spec(name) for name in ("onnxruntime", "onnxruntime_qnn")]
    runtime, provider = (Path(str(spec and spec.origin)).parent for spec in found)
    return f"{runtime / 'capi'}:{provider}"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    if not RUNNER.is_file():
        pytest.skip("the runner is not built here")
    monkeypatch.setenv("SATCHEL_QNN_LIBRARIES", library_folders())

    def call(*words: object, given: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(RUNNER), *map(str, words)]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, check=False, timeout=300
        )

    return call


def _document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def hybrid(tiny_checkpoint: Path) -> Path:
    output = tiny_checkpoint.parent / "hybrid69.satchel"
    chip = satchel.find_target(CHIP, num_sharding=2)
    return satchel.export(tiny_checkpoint, output, **{**OPTIONS, "target": chip})


def test_two_shards_and_blocks_give_pythons_text(
    hybrid: Path, run: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prompt of more than a block, to the end of the context and beyond it (slid)."""
    llm = LLM(hybrid)
    prompt = "Hello there, wörld! It is a long day."
    options = {"raw": True, "max_new_tokens": 14, "on_context_full": "slide"}
    wanted = llm.generate(prompt, **options).finish()
    words = ("--raw", "--max-new-tokens", 14, "--on-context-full", "slide", "--json")
    done = run("run", hybrid, prompt, *words)
    found = _document(done)
    assert found["tokens"] == wanted.tokens and found["text"] == wanted.text
    assert found["context_slides"] > 0 and found["mode"] == "hybrid"
    assert "runs on an emulator" in done.stderr
    short = ("run", hybrid, "Hi", "--max-new-tokens", 2, "--json")
    assert main([*map(str, short)]) == 0
    by_python = json.loads(capsys.readouterr().out)
    by_runner = _document(run(*short))
    assert set(by_runner) == set(by_python)
    for name in ("kernels", "threads", "tokens", "prompt_tokens"):
        assert by_runner[name] == by_python[name], name
    assert by_runner["lookahead"]["off_because"] == by_python["lookahead"]["off_because"]
    told = _document(
        run("bench", hybrid, *("--prompt-tokens", 2, "--new-tokens", 2, "--runs", 1), *MEASURED)
    )
    assert told["emulated"] is True and told["kernels"] == "qnn emulator"


def test_a_conversation_goes_on(hybrid: Path, run: Runner) -> None:
    """The cache is kept between turns, and forgotten where they differ."""
    done = run("chat", hybrid, "--max-new-tokens", 3, given="Hi\nAnd?\n")
    assert done.returncode == 0, done.stderr
    conversation = LLM(hybrid).chat(max_new_tokens=3, on_context_full="slide")
    texts = [conversation.send(text).finish().text for text in ("Hi", "And?")]
    assert done.stdout == "".join(text + "\n" for text in texts)


def test_guessing_ahead(tiny_checkpoint: Path, run: Runner) -> None:
    """One graph takes single tokens and guesses, and the text is that of plain decoding."""
    output = tiny_checkpoint.parent / "lookahead69.satchel"
    sizes = {"mode": "lookahead", "ngram": 3, "window": 2, "gcap": 2}
    path = satchel.export(tiny_checkpoint, output, **{**OPTIONS, **sizes})
    plain = LLM(path).generate(COPYING, raw=True, max_new_tokens=24, lookahead="off").finish()
    words = ("run", path, COPYING, "--raw", "--max-new-tokens", 24, "--json")
    guessed = _document(run(*words))
    assert guessed["tokens"] == plain.tokens and guessed["text"] == plain.text
    told = guessed["lookahead"]
    assert told["mode"] == "on" and told["accepted"] > 0 and told["steps"] < 23


def test_weights_that_methods_share(
    npu_program: Path, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the emulator what Python's first run compiled is used, and asked for if it is missing."""
    wanted = LLM(npu_program).generate("Hello", raw=True, max_new_tokens=4).finish()
    words = ("run", npu_program, "Hello", "--raw", "--max-new-tokens", 4, "--json")
    assert _document(run(*words))["tokens"] == wanted.tokens
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path))
    done = run(*words)
    assert done.returncode == 1 and "Run the file once with Python's satchel run" in done.stderr


def test_targets_and_libraries(
    hybrid: Path, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = _document(run("run", hybrid, "Hi", "--target", "cpu", "--max-new-tokens", 2, "--json"))
    assert "qnn" not in on_cpu["kernels"]
    done = run("run", hybrid, "Hi", "--target", "qnn:SM8750")
    assert done.returncode == 1 and f"It is for {CHIP}" in done.stderr
    damaged = bytearray(hybrid.read_bytes())
    at = damaged.index(b'"provider"')
    damaged[at + 1] ^= 1
    (tmp_path / "damaged.satchel").write_bytes(damaged)
    done = run("run", tmp_path / "damaged.satchel", "Hi")
    assert done.returncode == 1 and "not those that were written" in done.stderr
    monkeypatch.setenv("SATCHEL_QNN_LIBRARIES", str(tmp_path))
    done = run("run", hybrid, "Hi")
    assert done.returncode == 1 and "Set SATCHEL_QNN_LIBRARIES" in done.stderr


@pytest.mark.parametrize("crash", ["abort()", "*(volatile int *)0 = 1"])
def test_a_crash_of_the_vendors_is_told(
    crash: str, hybrid: Path, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By libraries that do nothing else."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "libonnxruntime.so"
    source = f"#include <stdlib.h>\nvoid *OrtGetApiBase(void) {{ {crash}; return 0; }}\n"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    monkeypatch.setenv("SATCHEL_QNN_LIBRARIES", str(tmp_path))
    done = run("run", hybrid, "Hi")
    assert done.returncode == 1 and not done.stdout
    assert re.search(r"libraries crashed \(SIG(ABRT|SEGV)\) while being opened", done.stderr)
    assert "--target cpu" in done.stderr


def with_manifest(program: Path, document: dict[str, Any], output: Path) -> Path:
    """The file with another manifest of the same length, and right checksums."""
    model = fm.read(program.read_bytes())
    (place,) = (w for w in model.weights if w.name.endswith("/manifest.json"))
    text = json.dumps(document, separators=(",", ":")).encode()
    assert len(text) <= place.codes_size
    text += b" " * (place.codes_size - len(text))
    place.digest = hashlib.sha256(text).digest()
    end = place.offset + place.codes_size
    model.weight_bytes = model.weight_bytes[: place.offset] + text + model.weight_bytes[end:]
    output.write_bytes(fm.write(model))
    return output


# What Python finds in what a run does not need: where it was cut, and encodings between.
ELSEWHERE = {"other bits", "another scale", "a chip that is none", "no target", "another input"}
ELSEWHERE |= {"a cut that cannot be", "cuts out of order", "an encoding less"}
ELSEWHERE |= {"a scale of zero", "a scale that is a word"}


def test_a_manifest_is_not_trusted(hybrid: Path, run: Runner, tmp_path: Path) -> None:
    """What Python refuses is refused here, before any library is loaded."""
    whole = json.loads(Program(hybrid).payload(MANIFEST))
    changes: dict[str, Change] = {k: v for k, (v, _) in BROKEN.items() if k not in ELSEWHERE}
    changes["no options"] = lambda d: d.pop("provider")
    changes["a path for a model"] = lambda d: d["methods"][0]["shards"][0].update(model="../x")
    changes["one name, two things"] = lambda d: d["methods"][0]["shards"][1]["inputs"].append(
        {**d["methods"][0]["shards"][0]["inputs"][0], "scale": 2.0}
    )
    changes["another host"] = lambda d: d["methods"][0].update(before="kv_forward")
    for name, change in changes.items():
        document = json.loads(json.dumps(whole))
        change(document)
        done = run("run", with_manifest(hybrid, document, tmp_path / "x.satchel"), "Hi")
        assert done.returncode == 1 and "satchel-run: " in done.stderr, (name, done.stderr)


def test_a_kit_runs_as_it_is(hybrid: Path, run: Runner, tmp_path: Path) -> None:
    """Its script starts satchel-run on the program that is beside it."""
    write_kit(Program(hybrid), tmp_path / "kit")
    words = ("run", "--prompt", "Hello", "--raw", "--max-new-tokens", "4", "--json")
    done = subprocess.run(
        ["sh", str(tmp_path / "kit" / "run.sh"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = _document(done)
    wanted = LLM(hybrid).generate("Hello", raw=True, max_new_tokens=4).finish()
    assert found["kernels"] == "qnn emulator" and found["tokens"] == wanted.tokens
    left = [path.name for path in (tmp_path / "kit").iterdir() if path.is_dir()]
    assert not left, "what was unpacked for the vendor's libraries is gone"


class _ModelOptions(ctypes.Structure):
    """As satchel.h has it."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_uint32),
        ("cache_memory", ctypes.c_uint64),
        ("verify", ctypes.c_uint32),
        ("target", ctypes.c_char_p),
    )


_CAPI = """
import ctypes, sys
sys.path[:0] = {folders!r}
from test_qnn_without_python import _ModelOptions
api = ctypes.CDLL({library!r})
api.satchel_error_message.restype = ctypes.c_char_p
for target in (b"qnn:SM8750", b"qnn:SM8450", b"qnn:SM8450"):
    options = _ModelOptions(ctypes.sizeof(_ModelOptions), 0, 0, 0, target)
    model = ctypes.c_void_p()
    status = api.satchel_model_open({path!r}, ctypes.byref(options), ctypes.byref(model))
    print(status, (api.satchel_error_message() or b"").decode() if status else "")
"""


def test_the_c_api_opens_an_npu_twice(hybrid: Path, run: Runner) -> None:
    """In a process of its own: it loads the vendor's libraries."""
    (library,) = (DEVICE / "lib").glob("libsatchel.so")
    folders = [str(Path(__file__).parents[n]) for n in (0, 2)]
    script = _CAPI.format(folders=folders, library=str(library), path=str(hybrid).encode())
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" # LIBNATIVE")]
    assert done.returncode == 0 and len(lines) == 3, done.stderr
    assert "is not for qnn:SM8750" in lines[0]
    assert [line.strip() for line in lines[1:]] == ["0", "0"]
