"""satchel bench --device: what the command line says of phones and boards."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from satchel.cli.arguments import threads
from satchel.cli.output import emit, table
from satchel.errors import UsageError
from satchel.units import megabytes

# Options of bench that only Python has.
_HERE_ONLY = ("gpu_layers", "lookahead", "profile", "prompt_file", "verify")


def add_device_options(
    group: argparse._ArgumentGroup | argparse.ArgumentParser, named: bool = True
) -> None:
    """``--device`` (unless its name comes in another way), and where things are and go."""
    if named:
        group.add_argument(
            "--device", metavar="DEVICE", help="measure there: ssh:[USER@]HOST[:PORT] or adb:SERIAL"
        )
    group.add_argument(
        "--folder", metavar="FOLDER", help="where files go on the device (default: one of its own)"
    )
    group.add_argument(
        "--runner",
        metavar="FILE",
        help="the satchel-run to bring there (default: SATCHEL_RUNNER, or the one that came along, "
        "for machines like this one)",
    )


def bench_flags(arguments: argparse.Namespace) -> list[str]:
    """The options of ``satchel bench`` as ``satchel-run bench`` takes them."""
    names = ("prompt_tokens", "new_tokens", "warmup", "runs", "cool_down")
    given = {name: getattr(arguments, name) for name in names}
    if threads(arguments):
        given["threads"] = threads(arguments)
    if getattr(arguments, "target", None):
        given["target"] = arguments.target
    return [word for name, value in given.items() for word in (_flag(name), str(value))]


def bench_device(arguments: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The document of one program, measured on ``--device``."""
    from satchel.devices import bench_on, open_device
    from satchel.progress import ProgressBar

    for name in _HERE_ONLY:
        if getattr(arguments, name, None):
            raise UsageError(f"{_flag(name)} is not measured on a device", "Leave it out.")
    device = open_device(arguments.device, arguments.folder)
    bar = ProgressBar()
    result = bench_on(device, path, bench_flags(arguments), arguments.runner, bar)
    bar.close()
    return result


def print_device(result: dict[str, Any]) -> None:
    """What the device was, below its figures; nothing for a measurement of this machine."""
    device = result.get("device")
    if device is None:
        return
    emit(f"{'on':<20} {told_device(device)}")
    governor = device["governor"] or "unknown governor"
    emit(f"{'':<20} {governor}, {told_conditions(device)}")


def told_device(device: dict[str, Any]) -> str:
    """Its name and what it is, in a few words."""
    cores = f"{device['cores']} cores" if device["cores"] else None
    memory = megabytes(device["memory_bytes"]) if device["memory_bytes"] else None
    known = [device["model"], device["soc"], cores, memory, device["system"]]
    return f"{device['name']} ({', '.join(each for each in known if each)})"


def told_conditions(device: dict[str, Any]) -> str:
    """How warm it was before and after, and how full its battery is."""
    ends = [device[when]["temperature_c"] for when in ("before", "after")]
    warm = [f"{end:.0f} °C" if end is not None else "unknown" for end in ends]
    battery = device["after"]["battery_percent"]
    told = f"temperature {warm[0]} before and {warm[1]} after"
    return told if battery is None else f"{told}, battery {battery} %"


def device_table(results: list[dict[str, Any]]) -> str:
    """A row for each program: language models first, then those that have a time for each call."""
    speeds = {"prefill tok/s": "prefill_tok_s", "decode tok/s": "decode_tok_s", "ttft ms": "ttft_s"}
    times = {"median ms": "median_s", "mean ms": "mean_s", "95% ms": "p95_s"}
    kinds = [(speeds, "prefill_tok_s"), (times, "median_s")]
    tables = []
    for columns, sign in kinds:
        rows = [
            [
                Path(each["program"]).name,
                megabytes(each["file_size_bytes"]),
                *(_figure(each[key], name) for name, key in columns.items()),
                megabytes(each["peak_rss_bytes"]),
                f"{each['threads']} x {each['kernels']}",
            ]
            for each in results
            if sign in each
        ]
        if rows:
            tables.append(table(rows, ["program", "file", *columns, "memory", "threads"]))
    return "\n\n".join(tables)


def _figure(value: float, column: str) -> str:
    if not column.endswith(" ms"):
        return f"{value:.1f}"
    return f"{value * 1000:.0f}" if column == "ttft ms" else f"{value * 1000:.2f}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
