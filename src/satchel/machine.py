"""What this machine gives the process: cores and memory."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

_HUGE_PAGES = "SATCHEL_HUGE_PAGES"
_together = [0]  # what this process and others took at the same time


def cores() -> int:
    """How many cores the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _linux_status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def peak_rss() -> int:
    """The most resident memory so far, in bytes."""
    peak = _linux_status("VmHWM")
    if peak is not None:
        return peak
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def peak_with_children() -> int:
    """The same with what processes took that were started: a target's compiler.

    Linux counts for a child what its parent had when it was started, so they tell it themselves.
    """
    return max(peak_rss(), *_together)


def note_children(peak: int) -> None:
    """Processes that were started took so many bytes at the same time, at most; this one has now
    what it had meanwhile."""
    _together.append(current_rss() + peak)


def current_rss() -> int:
    """The resident memory now, in bytes; where that is not known, the most so far."""
    return _linux_status("VmRSS") or peak_rss()


def memory_bytes() -> int | None:
    """All memory that the system has, or that its container may use; None if it is not known."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    with suppress(OSError, ValueError):  # "max", or no such file
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole


def return_memory() -> None:
    """Give the system back what was freed, where the C library keeps it for later."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Meanwhile a variable of the environment has another value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def small_pages() -> AbstractContextManager[None]:
    """Meanwhile no weights are copied into huge pages: they stay in the mapped file."""
    return environment(_HUGE_PAGES, "0")


def describe_machine() -> str:
    """The processor, its cores and the system, in a few words."""
    import platform

    name = platform.processor() or platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {cores()} cores, {platform.system()} {platform.machine()}"
