"""satchel doctor: what this machine can do, and what is missing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from satchel.cli.output import emit, print_json
from satchel.machine import cores, memory_bytes
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.backends.target import Examined

HELP = "show what this machine can do and what is missing"

# What each extra is for, and the modules that show that it is there. Those of targets are theirs.
EXTRAS = {
    "hub": ("huggingface_hub", "satchel pull hf:ORG/REPO"),
    "torch": ("torch", "satchel.export of PyTorch modules, .pt2 files"),
    "transformers": ("torch transformers", "satchel export FOLDER --task feature-extraction"),
    "vision": ("PIL torch torchvision", "satchel export torchvision:NAME"),
    "timm": ("PIL torch torchvision timm", "satchel export timm:NAME"),
    "onnx": ("onnx", "satchel export MODEL.onnx"),
    "images": ("PIL", "satchel run --input IMAGE, --image"),
    "speech": ("soundfile", "satchel transcribe"),
    "microphone": ("soundfile sounddevice", "satchel transcribe --microphone"),
    "structured": ("llguidance", "--schema, --regex, --grammar"),
    "serve": ("starlette uvicorn", "satchel serve"),
    "eval": ("lm_eval", "satchel eval --tasks"),
    "sweep": ("ray pyarrow fsspec rich", "satchel sweep --ray, Parquet"),
    "sign": ("cryptography", "satchel sign, verify --key"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # there is nothing to choose


def execute(arguments: argparse.Namespace) -> int:
    targets = examine_targets()
    report = examine(targets)
    if arguments.json:
        print_json(report)
    else:
        _print(report, [line for found in targets.values() for line in found.lines])
    return 0 if report["ok"] else 1


def examine_targets() -> dict[str, Examined]:
    """What targets find on this machine, by family."""
    from satchel.backends import families

    found = {name: family.examine() for name, family in families().items()}
    return {name: told for name, told in found.items() if told is not None}


def examine(targets: Mapping[str, Examined]) -> dict[str, Any]:
    """All that ``--json`` tells."""
    from satchel import _native
    from satchel.sources import cache_folder

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
        **{name: dict(told.document) for name, told in targets.items()},
        "cache": {"folder": str(cache), "free_bytes": shutil.disk_usage(existing).free},
        "packages": {name: _version(name) for name in ("numpy", "tokenizers", "jinja2", "gguf")},
        "extras": {
            extra: {
                "installed": not (missing := _missing(modules)),
                "for": purpose,
                "missing": missing,
            }
            for extra, (modules, purpose) in (EXTRAS | _extras_of_targets()).items()
        },
        "problems": problems,
        "ok": not problems,
    }


def _extras_of_targets() -> dict[str, tuple[str, str]]:
    from satchel.backends import families

    extras = (family.extra for family in families().values())
    return {extra.name: (extra.module, extra.purpose) for extra in extras if extra}


def _missing(modules: str) -> list[str]:
    return [module for module in modules.split() if importlib.util.find_spec(module) is None]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _print(report: dict[str, Any], targets: list[str]) -> None:
    kernels = report["kernels"]
    memory = megabytes(report["memory_bytes"]) if report["memory_bytes"] else "unknown"
    emit(f"satchel {report['satchel']}, Python {report['python']}, {report['platform']}")
    emit(f"threads   {report['threads']}, memory {memory}")
    emit(f"CPU       {', '.join(report['cpu_features']) or 'baseline'}")
    emit(f"kernels   {kernels['selected']} (available: {', '.join(kernels['available'])})")
    emit(f"AMX       {kernels['amx']}")
    for line in targets:
        emit(line)
    cache = report["cache"]
    emit(f"cache     {cache['folder']}, {megabytes(cache['free_bytes'])} free")
    packages = (f"{name} {number or 'missing'}" for name, number in report["packages"].items())
    emit(f"packages  {', '.join(packages)}")
    installed = [extra for extra, state in report["extras"].items() if state["installed"]]
    emit(f"extras    {', '.join(installed) or 'none installed'}")
    for extra, state in report["extras"].items():
        if not state["installed"]:
            emit(f"missing   {state['for']}: pip install 'satchel[{extra}]'")
    for problem in report["problems"]:
        emit(f"PROBLEM   {problem}")
    emit("All is well." if report["ok"] else "Some things need attention.")
