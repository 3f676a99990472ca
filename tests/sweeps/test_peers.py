"""Peers as columns: by the verbs of benchmarks/peers, in turns with ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.sweeps.experiment import read_experiment
from satchel.sweeps.peers import LANGUAGE, VISION
from satchel.sweeps.public import Sweep
from satchel.sweeps.results import Results

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"

# A runtime that somebody else might have made: it speaks the verbs and knows nothing of sweeps.
STAND_IN = """
import time
from pathlib import Path
from verbs import Prepared, main
import satchel

def prepare(source, out):
    satchel.export(source, out / "model.satchel", recipe="fp32", context=96, overwrite=True)
    return Prepared("stand-in", "model.satchel", 320, 1, 1, "fp32")

class Engine:
    version = "stand-in 1.0"
    def __init__(self, path, threads, context):
        self.llm = satchel.LLM(path, threads)
    def generate(self, prompt, new_tokens):
        session = self.llm.session
        session.rewind(0)
        started = time.perf_counter()
        token = int(session.feed(prompt).argmax())
        first = time.perf_counter()
        for _ in range(new_tokens - 1):
            token = int(session.feed([token]).argmax())
        return first - started, time.perf_counter() - first

main("A stand-in.", prepare, Engine)
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like benchmarks/peers, and an environment for one of them."""
    folder = tmp_path / "peers"
    folder.mkdir()
    shutil.copy(PEERS / "verbs.py", folder)
    (folder / "llamacpp_peer.py").write_text(STAND_IN)
    python = tmp_path / "environments" / "llamacpp" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("SATCHEL_PEERS", str(folder))
    monkeypatch.setenv("SATCHEL_PEER_ENVIRONMENTS", str(tmp_path / "environments"))
    return folder


def test_peers_are_measured_in_turns_with_ours(
    scripts: Path, tiny: dict[str, Any], tmp_path: Path
) -> None:
    tiny |= {"peers": ["llamacpp", "executorch", "ncnn"], "repeats": 2, "threads": [1]}
    (tmp_path / "question.txt").write_text("Why?")
    asked = {"file": str(tmp_path / "question.txt"), "new_tokens": 4}
    tiny["include"] = [{"prompts": [asked], "peers": ["llamacpp"]}]
    found = satchel.sweep(tiny, tmp_path / "results")
    rows = {row["peer"]: row for row in found if row["prompt"] == "8+4"}
    [of_file] = [row for row in found if row["peer"] and row["prompt"] == "question.txt+4"]
    assert "peers are measured with random prompts" in of_file["error"]
    ours, peer = rows[""], rows["llamacpp"]
    assert ours["status"] == peer["status"] == "ok"
    assert peer["decode_tok_s"] > 0 and len(peer["decode_tok_s_samples"]) == 2
    assert (peer["recipe_description"], peer["peer_version"]) == ("fp32", "stand-in 1.0")
    assert peer["bandwidth_before"] > 0 and peer["bandwidth_after"] > 0
    assert peer["bench_command"].startswith("env OMP_NUM_THREADS=1 ")  # all that it was given
    assert "executorch is not installed" in rows["executorch"]["error"]
    assert "install.py executorch" in rows["executorch"]["advice"]
    assert "no peer 'ncnn' runs language models" in rows["ncnn"]["error"]
    # Ours first in the first round, the peer first in the second.
    starts = Results(tmp_path / "results").records
    order = sorted(
        (record["started"], name.rpartition("-")[0].removeprefix("cell-"))
        for name, record in starts.items()
        if name.startswith(("cell-" + ours["cell"], "cell-" + peer["cell"]))
    )
    assert [cell for _, cell in order] == [ours["cell"], peer["cell"], peer["cell"], ours["cell"]]


# What llama.cpp's llama-bench prints, as far as it is read; the arguments are its own.
LLAMA_BENCH = """\
#!{python}
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert given["--threads"] == "3" and given["--repetitions"] == "2" and given["--output"] == "json"
reads = given["--n-gen"] == "0"
assert given["--n-prompt"] == ("100" if reads else "0")
assert given.get("--n-depth") == (None if reads else "100")
times = [1e9, 2e9] if reads else [4e9, 8e9]
print(json.dumps([{{"build_commit": "abc", "build_number": 7, "samples_ns": times}}]))
"""


def test_llama_bench_measures_by_itself(tmp_path: Path) -> None:
    tool = tmp_path / "llama-bench"
    tool.write_text(LLAMA_BENCH.format(python=sys.executable))
    tool.chmod(0o755)
    prepared = {"peer": "llama.cpp", "model": "model.gguf", "vocabulary": 320}
    prepared |= {"weight_bytes_read": 1, "kv_bytes_per_position": 1, "precision": "Q4_0"}
    (tmp_path / "prepared.json").write_text(json.dumps(prepared))
    options = "--prompt-tokens=100 --new-tokens=8 --threads=3 --runs=2 --json".split()
    done = subprocess.run(
        [sys.executable, str(PEERS / "llama_bench_peer.py"), "bench", str(tmp_path), *options],
        env={**os.environ, "LLAMA_BENCH": str(tool)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["version"] == "llama.cpp 7 (abc)" and found["precision"] == "Q4_0"
    assert found["samples"]["prefill_tok_s"] == [100, 50]
    assert found["samples"]["decode_tok_s"] == [2, 1]
    assert found["ttft_s"] == 1.5


def test_the_memory_of_a_peer_is_its_own() -> None:
    held = bytearray(b"x") * 200_000_000  # as a sweep that plans may hold
    script = "import verbs; print(verbs.peak_rss_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PEERS, stdout=subprocess.PIPE, check=True
    )
    assert 1e6 < int(done.stdout) < len(held) / 2


def test_a_tool_that_a_peer_needs_is_named(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_BENCH", str(tmp_path / "nowhere"))
    environment = tmp_path / "environments" / "llama-bench" / "bin"
    environment.mkdir(parents=True)
    (environment / "python").touch()
    monkeypatch.setenv("SATCHEL_PEER_ENVIRONMENTS", str(tmp_path / "environments"))
    plan = Sweep(read_experiment({**tiny, "peers": ["llama-bench"]}), tmp_path / "results").plan()
    [impossible] = [cell.impossible for cell in plan.cells if cell.cell.peer]
    assert impossible and impossible["message"] == "llama-bench is not on the path"
    assert "LLAMA_BENCH" in impossible["advice"]


@pytest.mark.parametrize("peer", [*LANGUAGE.values(), *VISION.values()])
def test_every_peer_has_its_script(peer: Any) -> None:
    assert (PEERS / peer.script).is_file()


def test_without_the_repository_it_is_told(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_PEERS", str(tmp_path))
    plan = Sweep(read_experiment({**tiny, "peers": ["llamacpp"]}), tmp_path / "results").plan()
    [impossible] = [cell.impossible for cell in plan.cells if cell.cell.peer]
    assert impossible and "the scripts of the peers are not here" in impossible["message"]
    assert "SATCHEL_PEERS" in impossible["advice"]
