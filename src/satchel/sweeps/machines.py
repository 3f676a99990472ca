"""The machine that measures: what it is, how warm it is, and whose turn it is."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel import _native
from satchel.machine import cores, describe_machine, memory_bytes
from satchel.sweeps.experiment import CoolDown

_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_THERMAL = Path("/sys/class/thermal")
_LOOK_EVERY = 2.0  # seconds


@cache
def machine_facts() -> dict[str, Any]:
    """What does not change while a sweep runs, and is needed to do the same again."""
    return {
        "machine": platform.node(),
        "cpu": describe_machine(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "satchel": version("satchel"),
        "numpy": version("numpy"),
        "kernels": _native.kernels.selected(),
        "governor": _line(_CPU / "scaling_governor"),
        "max_frequency_khz": _line(_CPU / "cpuinfo_max_freq"),
    }


def temperature(folder: Path = _THERMAL) -> float | None:
    """Of the warmest sensor, in degrees Celsius; None where there is none."""
    found = [_line(zone / "temp") for zone in folder.glob("thermal_zone*")]
    known = [int(text) / 1000 for text in found if text and text.lstrip("-").isdigit()]
    return max(known, default=None)


def bandwidth() -> float:
    """What all cores together read from memory now, in bytes a second."""
    return float(_native.kernels.measure_read_bandwidth(cores()))


def cool_down(
    rest: CoolDown,
    cold: float | None,
    now: Callable[[], float | None] = temperature,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Rest as long as asked, and until it is as cold as in the beginning; the seconds it took."""
    waited = rest.seconds
    if waited:
        sleep(waited)
    if rest.temperature is None or cold is None:
        return waited
    while waited < rest.at_most:
        warm = now()
        if warm is None or warm <= cold + rest.temperature:
            break
        step = min(_LOOK_EVERY, rest.at_most - waited)
        sleep(step)
        waited += step
    return waited


@contextmanager
def turn(alone: bool, machine: str = "") -> Iterator[int | None]:
    """Hold this machine: alone to measure, or together with others that work but do not measure.

    The number of the lock's file is given, so that a process can go on holding it when its parent
    has died. It works between all processes of a user on the machine, whichever sweep they are of.
    Another name holds another machine: a device that is reached from here.
    """
    if sys.platform == "win32":  # one sweep at a time there
        yield None
        return
    import fcntl

    name = "".join(c if c.isalnum() else "-" for c in machine)
    path = Path(tempfile.gettempdir()) / f"satchel-measuring-{os.getuid()}{name and '-' + name}"
    with open(path, "a+b") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield file.fileno()
        # Closing releases it, unless a process that was given the number still runs.


def _line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
