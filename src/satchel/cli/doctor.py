"""satchel doctor: what this machine can do, and what is missing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from satchel.cli.output import emit, print_json
from satchel.machine import cores, memory_bytes
from satchel.units import megabytes

HELP = "show what this machine can do and what is missing"

# What each extra adds, and the module that shows that it is there.
EXTRAS = {
    "hub": ("huggingface_hub", "satchel pull hf:ORG/REPO"),
    "eval": ("lm_eval", "satchel eval --tasks"),
    "sweep": ("ray", "satchel sweep --ray"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # there is nothing to choose


def execute(arguments: argparse.Namespace) -> int:
    report = examine()
    if arguments.json:
        print_json(report)
    else:
        _print(report)
    return 0 if report["ok"] else 1


def examine() -> dict[str, Any]:
    from satchel import _native
    from satchel.backends.vulkan import list_devices
    from satchel.sources import cache_folder

    gpus, no_vulkan = list_devices()
    problems: list[str] = []
    selected = None
    try:
        selected = _native.kernels.selected()
    except ValueError as error:
        problems.append(f"{error}; unset SATCHEL_ISA or choose another")
    cache = cache_folder()
    existing = next(p for p in (cache, *cache.parents) if p.exists())
    if not os.access(existing, os.W_OK):
        problems.append(f"{existing} is not writable; set SATCHEL_CACHE to another folder")
    return {
        "satchel": version("satchel"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": cores(),
        "memory_bytes": memory_bytes(),
        "cpu_features": _native.kernels.cpu_features(),
        "kernels": {
            "available": _native.kernels.available(),
            "selected": selected,
            "amx": _native.kernels.amx_status(),
        },
        "vulkan": {"devices": gpus, "missing": no_vulkan},
        "cache": {"folder": str(cache), "free_bytes": shutil.disk_usage(existing).free},
        "packages": {name: _version(name) for name in ("numpy", "tokenizers", "jinja2", "gguf")},
        "extras": {
            extra: {"installed": importlib.util.find_spec(module) is not None, "for": purpose}
            for extra, (module, purpose) in (EXTRAS | _extras_of_targets()).items()
        },
        "problems": problems,
        "ok": not problems,
    }


def _extras_of_targets() -> dict[str, tuple[str, str]]:
    from satchel.backends import families

    extras = (family.extra for family in families().values())
    return {extra.name: (extra.module, extra.purpose) for extra in extras if extra}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _print(report: dict[str, Any]) -> None:
    kernels = report["kernels"]
    memory = megabytes(report["memory_bytes"]) if report["memory_bytes"] else "unknown"
    emit(f"satchel {report['satchel']}, Python {report['python']}, {report['platform']}")
    emit(f"threads   {report['threads']}, memory {memory}")
    emit(f"CPU       {', '.join(report['cpu_features']) or 'baseline'}")
    emit(f"kernels   {kernels['selected']} (available: {', '.join(kernels['available'])})")
    emit(f"AMX       {kernels['amx']}")
    _print_vulkan(report["vulkan"])
    cache = report["cache"]
    emit(f"cache     {cache['folder']}, {megabytes(cache['free_bytes'])} free")
    packages = (f"{name} {number or 'missing'}" for name, number in report["packages"].items())
    emit(f"packages  {', '.join(packages)}")
    for extra, state in report["extras"].items():
        there = "installed" if state["installed"] else f"missing: pip install 'satchel[{extra}]'"
        emit(f"extra     {extra} ({state['for']}): {there}")
    for problem in report["problems"]:
        emit(f"PROBLEM   {problem}")
    emit("All is well." if report["ok"] else "Some things need attention.")


def _print_vulkan(vulkan: dict[str, Any]) -> None:
    for number, device in enumerate(vulkan["devices"]):
        target = f"--target vulkan:{number}" if number else "--target vulkan"
        size = megabytes(device["memory_bytes"])
        emit(f"Vulkan    {device['name']} ({device['type']}, {device['api']}, {size}): {target}")
    if not vulkan["devices"]:
        emit(f"Vulkan    none: {vulkan['missing'] or 'no driver has a device'}")
