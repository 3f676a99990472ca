"""Where the time of calls goes: how often each op runs, and how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from satchel.backends import find_target
from satchel.errors import ConfigError
from satchel.runtime.program import Instance, Program


def require_profile(program: Program) -> None:
    """Refuse a program whose ops can neither be timed nor have their cycles counted."""
    target = find_target(program.target)
    if not target.times_ops and not target.counts_cycles:
        raise ConfigError(
            f"{program.path} is for {target.name}, whose ops cannot be timed one by one",
            "Leave out --profile, or export the model for the CPU.",
        )


def profile_of(instance: Instance, work: Callable[[], object], runs: int) -> dict[str, Any]:
    """The seconds of a run of ``work``, of each op in it and of each kind of layer, the longest
    first; of a chip that counts them, cycles."""
    instance.start_profile()
    started = time.perf_counter()
    if find_target(instance.program.target).counts_cycles:
        return _cycles_of(instance, work, runs)
    try:
        for _ in range(runs):
            work()
    finally:
        seconds = time.perf_counter() - started
        ops, layers = instance.take_profile()
    return {
        "seconds": seconds / runs,
        "ops": [
            {"op": op, "calls": calls // runs, "seconds": spent / runs, "share": spent / seconds}
            for op, (calls, spent) in sorted(ops.items(), key=lambda row: -row[1][1])
        ],
        "layers": [
            {
                "layer": layer,
                "calls": calls // runs,
                "seconds": spent / runs,
                "multiply_adds_s": products / spent,
            }
            for layer, (calls, spent, products) in sorted(
                layers.items(), key=lambda row: -row[1][1]
            )
        ],
    }


def _cycles_of(instance: Any, work: Callable[[], object], runs: int) -> dict[str, Any]:
    started = time.perf_counter()
    for _ in range(runs):
        work()
    seconds = (time.perf_counter() - started) / runs
    cycles: dict[str, tuple[int, int]] = instance.take_cycles()
    total = sum(spent for _, spent in cycles.values())
    ordered = sorted(cycles.items(), key=lambda row: -row[1][1])
    ops = [
        {"op": op, "calls": calls // runs, "cycles": spent // runs, "share": spent / (total or 1)}
        for op, (calls, spent) in ordered
    ]
    return {"seconds": seconds, "cycles": total // runs, "ops": ops, "layers": []}


def _cycle_lines(name: str, profile: dict[str, Any]) -> Iterator[str]:
    yield f"{name:<24} {'calls':>7} {'cycles':>12} {'share':>7}"
    for row in profile["ops"]:
        yield f"  {row['op']:<22} {row['calls']:7} {row['cycles']:12,} {row['share']:7.1%}"
    yield f"  {'in all':<22} {'':7} {profile['cycles']:12,}"


def profile_lines(name: str, profile: dict[str, Any]) -> Iterator[str]:
    """Tables of what :func:`profile_of` found."""
    if "cycles" in profile:
        yield from _cycle_lines(name, profile)
        return
    yield f"{name:<20} {'calls':>7} {'ms':>10} {'share':>7}"
    for row in profile["ops"]:
        ms = row["seconds"] * 1000
        yield f"  {row['op']:<18} {row['calls']:7} {ms:10.3f} {row['share']:7.1%}"
    total = profile["seconds"]
    rest = total - sum(row["seconds"] for row in profile["ops"])
    yield f"  {'outside of ops':<18} {'':7} {rest * 1000:10.3f} {rest / total:7.1%}"
    yield f"  {'in all':<18} {'':7} {total * 1000:10.3f}"
    if not profile["layers"]:
        return
    width = max(len(row["layer"]) for row in profile["layers"])
    yield f"  {'by weights':<{width}} {'calls':>7} {'ms':>10} {'G multiply-adds/s':>18}"
    for row in profile["layers"]:
        ms, rate = row["seconds"] * 1000, row["multiply_adds_s"] / 1e9
        yield f"  {row['layer']:<{width}} {row['calls']:7} {ms:10.3f} {rate:18.1f}"
