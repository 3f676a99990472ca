"""A program's speed on a device, by ``satchel-run``."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from satchel.devices.description import Description
from satchel.devices.device import ShellDevice
from satchel.errors import DeviceError, blaming
from satchel.progress import Progress

_BUILDS = {"x86_64": "runner", "aarch64": "runner-aarch64"}


def find_runner(description: Description, given: str | os.PathLike[str] | None = None) -> Path:
    """The ``satchel-run`` to bring to a device: the given one, ``SATCHEL_RUNNER``'s, or our own.

    The one that comes with the package is for machines like this one.
    """
    chosen = given or os.environ.get("SATCHEL_RUNNER")
    if chosen:
        if not Path(chosen).is_file():
            raise DeviceError(f"there is no runner {chosen}", "Check the path.")
        return Path(chosen)
    if sys.platform == "linux" and description.machine == platform.machine():
        from satchel import _native

        own = Path(_native.__file__).parent / "device" / "bin" / "satchel-run"
        if own.is_file():
            return own
    preset = _BUILDS.get(description.machine, "runner")
    raise DeviceError(
        f"{description.name} is {description.machine or 'unknown'}, and no runner for it is here",
        f"Build one in Satchel's sources (cmake --preset {preset} && cmake --build --preset "
        f"{preset}) and give it with --runner build/{preset}/satchel-run.",
    )


def bring_runner(
    device: ShellDevice, description: Description, runner: Path, progress: Progress | None = None
) -> str:
    """Where the runner is on the device, after it was seen to start there."""
    place = device.push(runner, progress)
    done = device.run([place, "--version"], timeout=60)
    if done.status != 0:
        raise DeviceError(
            f"{runner} does not run on {device.name} ({description.machine}): "
            f"{done.errors or f'status {done.status}'}",
            "Give a static one for that machine with --runner; a folder may also forbid programs "
            "(noexec): choose another with --folder.",
        )
    return place


def bench_on(
    device: ShellDevice,
    program: str | os.PathLike[str],
    flags: Sequence[str] = (),
    runner: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The document of ``satchel bench --json``, measured on a device, and what that device is.

    Runner and program are sent if they are not there. ``flags`` are those of ``satchel-run bench``.

    >>> bench_on(device, "m.satchel", ["--runs", "5"])["device"]["soc"]   # doctest: +SKIP
    """
    before = device.describe()
    place = bring_runner(device, before, find_runner(before, runner), progress)
    file = device.push(program, progress)
    before = device.describe()  # again: sending may have taken long
    done = device.run([place, "bench", file, "--json", *flags])
    after = device.describe()
    if done.status != 0:
        raise DeviceError(f"{program} failed on {device.name}: {done.errors}", "")
    with blaming(DeviceError, f"what {device.name} printed is no result", "Run it there by hand."):
        document = dict(json.loads(done.output))
    return {
        **document,
        "program": str(program),
        "device": {
            **before.to_dict(),
            "before": asdict(before.condition),
            "after": asdict(after.condition),
        },
    }
