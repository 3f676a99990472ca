"""Other runtimes as columns of a sweep, through the scripts in the repository's benchmarks/peers.

Each has an environment of its own, which ``python benchmarks/peers/install.py NAME`` makes. The
scripts are not part of the installed package: a sweep with peers needs a checkout, which is found
from the experiment's folder, or by ``SATCHEL_PEERS``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import satchel
from satchel.errors import ConfigError
from satchel.sources.cache import locked
from satchel.sources.names import VISION_PREFIX
from satchel.sweeps.content import content_digest, digest_of
from satchel.sweeps.devices import BenchCall
from satchel.sweeps.machines import turn
from satchel.sweeps.matrix import Cell
from satchel.sweeps.processes import run_json


@dataclass(frozen=True)
class Peer:
    """Another runtime: its name in tables, its script, and what is special about it."""

    label: str
    script: str
    environment: str = ""  # whose it runs in, if not its own
    files: str = ""  # whose prepared models it uses, if not its own
    variables: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""  # a program that its environment does not bring


LANGUAGE = {
    "llamacpp": Peer("llama.cpp, AVX-512 VNNI", "llamacpp_peer.py"),
    "llamacpp-avx2": Peer("llama.cpp, AVX2", "llamacpp_peer.py", files="llamacpp"),
    "llama-bench": Peer(
        "llama.cpp, llama-bench", "llama_bench_peer.py", files="llamacpp", tool="llama-bench"
    ),
    "onnxruntime-genai": Peer("ONNX Runtime GenAI", "onnxruntime_peer.py"),
    "openvino-genai": Peer("OpenVINO GenAI", "openvino_peer.py"),
    "executorch": Peer("ExecuTorch, XNNPACK", "executorch_peer.py"),
}
VISION = {
    "onnxruntime": Peer("ONNX Runtime", "vision_onnxruntime.py"),
    "openvino": Peer("OpenVINO", "vision_openvino.py"),
    # Where a hypervisor hides the size of AMX tiles, OpenVINO's AMX kernels fail.
    "openvino-vnni": Peer(
        "OpenVINO, VNNI only",
        "vision_openvino.py",
        "openvino",
        "openvino",
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    ),
    "executorch": Peer("ExecuTorch XNNPACK", "vision_executorch.py"),
    "ncnn": Peer("ncnn", "vision_ncnn.py"),
    "torch": Peer("torch eager", "vision_torch.py", "onnxruntime"),
}
_ONNX = "onnxruntime"  # its file in floats is what other vision peers begin with


def label_of(name: str) -> str:
    """As tables call it.

    >>> label_of("llamacpp")
    'llama.cpp, AVX-512 VNNI'
    """
    known = LANGUAGE.get(name) or VISION.get(name)
    return known.label if known else name


def find_peer(cell: Cell, source: str, folder: Path, work: Path) -> dict[str, Any]:
    """How a peer's cell is prepared and measured; raises what makes it impossible."""
    model = cell.model
    kind = LANGUAGE if cell.prompt else VISION
    if cell.peer not in kind:
        listed = ", ".join(kind)
        what = "language models" if cell.prompt else "vision models"
        raise ConfigError(f"no peer {cell.peer!r} runs {what}", f"Those that do: {listed}.")
    peer, scripts = kind[cell.peer], _scripts(folder)
    python = _python(peer.environment or cell.peer)
    owner = peer.files or cell.peer
    variables = {**peer.variables, **_tool(peer.tool)}
    if cell.threads:
        variables["OMP_NUM_THREADS"] = str(cell.threads)
    found = {"python": python, "script": str(scripts / peer.script), "variables": variables}
    if cell.prompt:
        path = Path(source)
        if model.is_program or not path.exists():
            raise ConfigError(f"{source} is no checkpoint that a peer reads")
        place = work / f"{owner}-{digest_of(content_digest(path))}"
        return {**found, "folder": str(place), "prepare": [source, str(place), "--json"]}
    if "--random-weights" not in model.flags:
        told = "peers run vision models of torchvision's with random weights"
        raise ConfigError(told, "Add weights: random.")
    name = model.source.removeprefix(VISION_PREFIX)
    onnx, place = work / f"{_ONNX}-{name}-fp32", work / f"{owner}-{name}-{cell.recipe.name}"
    first = []
    if place != onnx:
        script = str(scripts / VISION[_ONNX].script)
        first = [_python(_ONNX), script, "prepare", name, "fp32", str(onnx), str(onnx)]
    arguments = [name, cell.recipe.name, str(onnx), str(place)]
    return {**found, "folder": str(place), "prepare": arguments, "first": first, "onnx": str(onnx)}


def prepared_peer(
    peer: Mapping[str, Any], call: BenchCall, logs: Path
) -> tuple[list[str], dict[str, str]]:
    """The command that measures a peer, and its environment; its model is converted before."""
    folder = Path(peer["folder"])
    script = [peer["python"], peer["script"]]
    if peer.get("first"):
        _prepare(Path(peer["onnx"]), peer["first"], logs)
    _prepare(folder, [*script, "prepare", *peer["prepare"]], logs)
    command = [*script, "bench", str(folder), f"--warmup={call.warmup}", f"--runs={call.runs}"]
    command += [f"--threads={call.threads}"] if call.threads else []
    if call.prompt_tokens is not None:
        command += [f"--prompt-tokens={call.prompt_tokens}", f"--new-tokens={call.new_tokens}"]
        command += ["--json"]
    return command, dict(peer["variables"])


def _prepare(folder: Path, command: list[str], logs: Path) -> None:
    done = folder / "prepared"
    if done.exists():
        return
    with locked(folder), turn(alone=False) as lock:
        if not done.exists():
            held = () if lock is None else (lock,)
            run_json(command, logs / f"{folder.name}-prepare.log", hold=held)
            done.touch()


def _scripts(folder: Path) -> Path:
    chosen = os.environ.get("SATCHEL_PEERS")
    roots = [*folder.absolute().parents, Path(satchel.__file__).parents[2]]
    places = [root / "benchmarks" / "peers" for root in (folder.absolute(), *roots)]
    for place in [Path(chosen)] if chosen else places:
        if (place / "verbs.py").exists():
            return place
    raise ConfigError(
        "the scripts of the peers are not here",
        "They are in the repository's benchmarks/peers; SATCHEL_PEERS names that folder.",
    )


def _tool(name: str) -> dict[str, str]:
    """Where a program is, for the script that runs it."""
    if not name:
        return {}
    variable = name.upper().replace("-", "_")
    path = shutil.which(os.environ.get(variable) or name)
    if path is None:
        raise ConfigError(
            f"{name} is not on the path", f"Install what brings it, or name it by {variable}."
        )
    return {variable: path}


def environments_folder() -> Path:
    """Where the peers' environments are."""
    if chosen := os.environ.get("SATCHEL_PEER_ENVIRONMENTS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "satchel-benchmarks" / "environments"


def _python(name: str) -> str:
    path = environments_folder() / name / "bin" / "python"
    if not path.exists():
        raise ConfigError(
            f"{name} is not installed",
            f"In the repository: python benchmarks/peers/install.py {name}.",
        )
    return str(path)
