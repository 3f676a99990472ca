"""The folder where fetched checkpoints and exported programs are kept."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from satchel.files import PARTIAL_PREFIX


def cache_folder() -> Path:
    """``$SATCHEL_CACHE``, or a folder in the user's cache of the platform."""
    if chosen := os.environ.get("SATCHEL_CACHE"):
        return Path(chosen).expanduser()
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "satchel"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "satchel"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "satchel"


def checkpoints_folder() -> Path:
    """Where fetched checkpoints are kept."""
    return cache_folder() / "checkpoints"


def programs_folder() -> Path:
    """Where programs are kept that first use exports."""
    return cache_folder() / "programs"


def file_facts(path: Path) -> list[object]:
    """What tells a file, or the files of a folder, from what was there before."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    facts: list[object] = [str(path.resolve())]
    for file in files:
        if file.is_file():
            # Archives give files the age that they had, but not the time of their last change.
            told = file.stat()
            facts.append((file.name, told.st_size, told.st_mtime_ns, told.st_ctime_ns))
    return facts


@contextmanager
def partial_folder(parent: Path) -> Iterator[Path]:
    """A folder for work in progress within ``parent``, removed at the end in any case."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=PARTIAL_PREFIX, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_partials(parent: Path) -> None:
    """Remove what a killed process left in ``parent``; the caller holds its lock."""
    for path in parent.glob(PARTIAL_PREFIX + "*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a folder's lock: a second process waits here until the first is done.

    Whether it is held is told: one that is not to wait may not get it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a+b") as file:
        if not _lock(file, wait):
            yield False
            return
        try:
            yield True
        finally:
            _unlock(file)


if sys.platform == "win32":
    import msvcrt
    import time

    def _lock(file: IO[bytes], wait: bool) -> bool:
        while True:
            file.seek(0)
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False
                time.sleep(0.2)

    def _unlock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes], wait: bool) -> bool:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_UN)
