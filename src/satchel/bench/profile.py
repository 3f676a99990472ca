"""Where the time of calls goes: how often each op runs, and how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from satchel.errors import ConfigError
from satchel.runtime.program import Instance, Program


def require_profile(program: Program) -> None:
    """Refuse a program whose ops are not run by the native core."""
    target = str(program.metadata.get("target", "cpu"))
    if not target.startswith("cpu"):
        raise ConfigError(
            f"{program.path} is for {target}, whose ops cannot be timed one by one",
            "Leave out --profile, or export the model for the CPU.",
        )


def profile_of(instance: Instance, work: Callable[[], object], runs: int) -> dict[str, Any]:
    """The seconds of a run of ``work``, and of each op in it, the longest first."""
    instance.start_profile()
    started = time.perf_counter()
    try:
        for _ in range(runs):
            work()
    finally:
        seconds = time.perf_counter() - started
        times = instance.take_profile()
    rows = sorted(times.items(), key=lambda row: -row[1][1])
    return {
        "seconds": seconds / runs,
        "ops": [
            {"op": op, "calls": calls // runs, "seconds": spent / runs, "share": spent / seconds}
            for op, (calls, spent) in rows
        ],
    }


def profile_lines(name: str, profile: dict[str, Any]) -> Iterator[str]:
    """A table of what :func:`profile_of` found."""
    yield f"{name:<20} {'calls':>7} {'ms':>10} {'share':>7}"
    for row in profile["ops"]:
        ms = row["seconds"] * 1000
        yield f"  {row['op']:<18} {row['calls']:7} {ms:10.3f} {row['share']:7.1%}"
    total = profile["seconds"]
    rest = total - sum(row["seconds"] for row in profile["ops"])
    yield f"  {'outside of ops':<18} {'':7} {rest * 1000:10.3f} {rest / total:7.1%}"
    yield f"  {'in all':<18} {'':7} {total * 1000:10.3f}"
