"""Who takes part in the side-by-side run: how each is prepared and measured."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.sources.random_weights import tensor_shapes, write_checkpoint
from satchel.sources.shapes import SHAPES
from satchel.sweeps.peers import LANGUAGE
from satchel.sweeps.processes import Failed, run_json

HERE = Path(__file__).resolve().parent
# Real weights are known for this one; llama.cpp and Satchel take its file as it is.
PULLED = "smollm2-135m"
LONG_PROMPT = 2048
CONTEXT = LONG_PROMPT + 256


@dataclass(frozen=True)
class Settings:
    work: Path
    environments: Path
    threads: int
    prompt_tokens: int
    new_tokens: int
    runs: int
    fresh: bool = False
    export_options: tuple[str, ...] = ()

    def bench_options(self) -> list[str]:
        return [
            f"--prompt-tokens={self.prompt_tokens}",
            f"--new-tokens={self.new_tokens}",
            f"--threads={self.threads}",
            f"--runs={self.runs}",
            "--json",
        ]


@dataclass(frozen=True)
class Contender:
    """A row of the table."""

    name: str
    label: str
    script: str = ""  # empty for Satchel
    shares: str = ""  # whose prepared model it uses, if not its own
    isa: str = ""  # whose int8 rate limits it; empty: the best there is
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_satchel(self) -> bool:
        return not self.script


_LIMITS = {"llamacpp-avx2": "avx2"}  # of a build for less than this machine has
PEERS = tuple(
    Contender(name, peer.label, peer.script, peer.files, _LIMITS.get(name, ""))
    for name, peer in LANGUAGE.items()
)


def satchels(selected: str, available: list[str]) -> list[Contender]:
    """Satchel as it comes, and held to the lesser instruction sets of this machine."""
    rows = [Contender("satchel", f"Satchel ({selected})", isa=selected)]
    for isa in available:
        if isa != selected:
            name, limit = f"satchel-{isa}", {"SATCHEL_ISA": isa}
            rows.append(Contender(name, f"Satchel ({isa})", "", "satchel", isa, limit))
    return rows


def macs_per_token(model: str, prompt_tokens: int) -> float:
    """Of the matrices, per prompt token; the output head works for the last token only."""
    config = SHAPES[model]
    head = config["vocab_size"] * config["hidden_size"]
    shapes = tensor_shapes(config)
    outside = ("model.embed_tokens.weight", "lm_head.weight")
    total = sum(
        shape[0] * shape[1]
        for name, shape in shapes.items()
        if len(shape) == 2 and name not in outside
    )
    return float(total + head / prompt_tokens)


def satchel(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "satchel", *arguments]


def checkpoint(model: str, settings: Settings) -> Path:
    """The random checkpoint, written once."""
    folder = settings.work / "checkpoints" / model
    if not (folder / "tokenizer_config.json").exists():  # written last
        print(f"writing random weights of {model} …", file=sys.stderr, flush=True)
        write_checkpoint(model, folder)
    return folder


def source(model: str, who: Contender, settings: Settings) -> Path:
    """The real SmolLM2 where it can be used and had, else random weights."""
    if model == PULLED and (who.is_satchel or who.script == "llamacpp_peer.py"):
        log = settings.work / "logs" / f"{model}-pull.log"
        try:
            return Path(run_json(satchel("pull", PULLED, "--json"), log)["path"])
        except Failed as reason:
            print(f"random weights instead of {PULLED}: {reason}", file=sys.stderr, flush=True)
    return checkpoint(model, settings)


def prepared_at(model: str, who: Contender, settings: Settings) -> Path:
    return settings.work / model / (who.shares or who.name)


def python_of(who: Contender, settings: Settings) -> str:
    path = settings.environments / who.name / "bin" / "python"
    if not path.exists():
        raise Failed(f"not installed: python benchmarks/peers/install.py {who.name}")
    return str(path)


def prepare(model: str, who: Contender, settings: Settings) -> dict[str, Any]:
    """Exports for this contender, unless an earlier run did; what that took."""
    folder = prepared_at(model, who, settings)
    done = folder / "prepared.json"
    if done.exists() and (who.shares or not settings.fresh):
        document: dict[str, Any] = json.loads(done.read_text())
        return document
    log = settings.work / "logs" / f"{model}-{who.name}-prepare.log"
    if who.is_satchel:
        folder.mkdir(parents=True, exist_ok=True)
        found = source(model, who, settings)
        options = ["--recipe", "8da4w", "--group-size", "32", "--context", str(CONTEXT)]
        # The published SmolLM2 keeps 8 bits in its embedding and head; peers get random weights
        # with 4 bits everywhere.
        bits = 4 if found.is_dir() else 8
        options += ["--embedding", f"{bits},32", "--head-bits", str(bits)]
        output = str(folder / "model.satchel")
        command = satchel("export", str(found), "-o", output, "--force", "--json", *options)
        document = run_json([*command, *settings.export_options], log)
        done.write_text(json.dumps(document))
        return document
    python = python_of(who, settings)
    script = str(HERE / "peers" / who.script)
    found = source(model, who, settings)
    return run_json([python, script, "prepare", str(found), str(folder), "--json"], log)


def bench(model: str, who: Contender, settings: Settings, number: int) -> dict[str, Any]:
    """One process of one round."""
    folder = prepared_at(model, who, settings)
    log = settings.work / "logs" / f"{model}-{who.name}-{number}.log"
    threads = {"OMP_NUM_THREADS": str(settings.threads), **who.environment}
    if who.is_satchel:
        command = satchel("bench", str(folder / "model.satchel"))
    else:
        script = str(HERE / "peers" / who.script)
        command = [python_of(who, settings), script, "bench", str(folder)]
    return run_json([*command, *settings.bench_options()], log, threads)


def long_prompt(model: str, who: Contender, settings: Settings, number: int) -> dict[str, Any]:
    """Satchel's time for a short and for a long prompt: what attention adds."""
    folder = prepared_at(model, who, settings)
    log = settings.work / "logs" / f"{model}-{who.name}-long-{number}.log"
    command = [sys.executable, str(HERE / "lengths.py"), str(folder / "model.satchel")]
    command += [f"--prompts={settings.prompt_tokens},{LONG_PROMPT}", "--runs=1"]
    return run_json([*command, f"--threads={settings.threads}", "--json"], log, who.environment)
