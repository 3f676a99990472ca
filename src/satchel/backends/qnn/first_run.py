"""The emulator's first run of a program takes minutes: what it is waiting for is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from satchel.backends.qnn.manifest import Manifest
from satchel.progress import Progress
from satchel.remarks import remark

LABEL = "Compiling for the emulator, graphs"
_LOOKS_EVERY = 0.5  # seconds


@contextmanager
def compiling_told(
    manifest: Manifest, folder: Path, progress: Progress, every: float = _LOOKS_EVERY
) -> Iterator[None]:
    """While a child compiles graphs for the emulator into ``folder``, tell how many are there."""
    files = [folder / shard.model for m in manifest.methods.values() for shard in m.shards]

    def look() -> int:
        return sum(file.exists() for file in files)

    if not manifest.shared or look() == len(files):
        yield
        return
    remark(
        f"The emulator cannot load binaries that share weights, so {len(files)} graphs are "
        "compiled for it: that takes minutes, once."
    )
    finished = Event()

    def watch() -> None:
        progress(LABEL, look(), len(files))
        while not finished.wait(every):
            progress(LABEL, look(), len(files))

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
    progress(LABEL, look(), len(files))
