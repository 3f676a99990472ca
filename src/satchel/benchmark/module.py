"""How long one call of a program takes, whatever model it holds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.benchmark.profile import profile_of, require_profile
from satchel.machine import peak_rss
from satchel.runtime.program import Program


@dataclass(frozen=True)
class ModuleBench:
    warmup: int = 3
    runs: int = 20
    threads: int = 0
    method: str = ""  # by default the first one: forward, or encode of a model that hears
    profile: bool = False
    cool_down: float = 0.0  # seconds of rest before the runs that count


def random_inputs(program: Program, method: str) -> list[NDArray[Any]]:
    """Arrays of the method's types; symbolic sizes are 1."""
    info = next(m for m in program.methods if m["name"] == method)
    rng = np.random.default_rng(0)
    arrays: list[NDArray[Any]] = []
    for value in info["inputs"]:
        shape = [1 if isinstance(d, tuple) else d for d in value["shape"]]
        if value["dtype"] in ("f32", "f16"):
            arrays.append(rng.standard_normal(shape).astype(np.float32))
        else:
            arrays.append(np.zeros(shape, bool if value["dtype"] == "bool" else np.int32))
    return arrays


def measure_module(program: Program, options: ModuleBench) -> dict[str, Any]:
    """Times in seconds: the fields are those of docs/json.md."""
    if options.profile:
        require_profile(program)
    instance = program.instance(options.threads)
    name = options.method or program.methods[0]["name"]
    method = instance.method(name)
    inputs = random_inputs(program, name)
    for _ in range(max(1, options.warmup)):
        method.run(*inputs)
    time.sleep(options.cool_down)
    times = []
    for _ in range(options.runs):
        started = time.perf_counter()
        method.run(*inputs)
        times.append(time.perf_counter() - started)
    info = next(m for m in program.methods if m["name"] == name)
    profile = None
    if options.profile:
        profile = {name: profile_of(instance, lambda: method.run(*inputs), options.runs)}
    return {
        "mean_s": float(np.mean(times)),
        "median_s": float(np.median(times)),
        "p95_s": float(np.percentile(times, 95)),
        "fastest_s": min(times),
        "calls_s": 1 / float(np.median(times)),
        "arena_bytes": info["arena_bytes"],
        "peak_rss_bytes": peak_rss(),
        "file_size_bytes": program.size,
        "checksum": program.checksum,
        "method": name,
        "runs": options.runs,
        "threads": instance.threads,
        "kernels": instance.kernels,
        "emulated": instance.emulated,
        "samples": {"latency_s": times},
        "profile": profile,
    }
