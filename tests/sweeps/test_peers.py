"""Peers as columns: by the verbs of benchmarks/peers, in turns with ours."""

from __future__ import annotations

import shutil
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
    tiny |= {"peers": ["llamacpp", "executorch", "ncnn"], "repeats": 2}
    rows = {row["peer"]: row for row in satchel.sweep(tiny, tmp_path / "results")}
    ours, peer = rows[""], rows["llamacpp"]
    assert ours["status"] == peer["status"] == "ok"
    assert peer["decode_tok_s"] > 0 and len(peer["decode_tok_s_samples"]) == 2
    assert (peer["recipe_description"], peer["peer_version"]) == ("fp32", "stand-in 1.0")
    assert peer["bandwidth_before"] > 0 and peer["bandwidth_after"] > 0
    assert "executorch is not installed" in rows["executorch"]["error"]
    assert "install.py executorch" in rows["executorch"]["advice"]
    assert "no peer 'ncnn' runs language models" in rows["ncnn"]["error"]
    # Ours first in the first round, the peer first in the second.
    starts = Results(tmp_path / "results").records
    order = sorted(
        (record["started"], name.rpartition("-")[0].removeprefix("cell-"))
        for name, record in starts.items()
        if name.startswith("cell-")
    )
    assert [cell for _, cell in order] == [ours["cell"], peer["cell"], peer["cell"], ours["cell"]]


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
