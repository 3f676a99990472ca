"""Reading bytes of a file at an offset, into fresh memory.

Nothing is mapped: the pages of a mapped file would count into the peak memory of an export.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from satchel.errors import CheckpointError
from satchel.files import open_regular


class WeightFile:
    """An open file that is read at offsets. Several threads may read at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "rb", buffering=0, opener=open_regular)  # noqa: SIM115
            self.size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be opened: {error.strerror}", "Check the path and its permissions"
            ) from error
        self._lock = threading.Lock()

    def read_into(self, offset: int, target: NDArray[np.uint8]) -> None:
        """Fill ``target`` (contiguous) with the bytes that start at ``offset``."""
        view = target.reshape(-1).data
        with self._lock:
            if self._file.closed:
                raise CheckpointError(
                    f"{self.path} is closed", "Read before closing the checkpoint"
                )
            self._file.seek(offset)
            done = 0
            while done < len(view):
                # A read may come back short (2 GB at most on Linux).
                count = self._file.readinto(view[done:])
                if not count:
                    raise CheckpointError(
                        f"{self.path} ends before byte {offset + len(view)}, inside of a tensor",
                        "The file changed or is cut off: fetch it again",
                    )
                done += count

    def read(self, offset: int, count: int) -> bytes:
        """The ``count`` bytes at ``offset``; fewer only where the file ends."""
        count = max(0, min(count, self.size - offset))
        target = np.empty(count, np.uint8)
        if count:
            self.read_into(offset, target)
        return target.tobytes()

    def close(self) -> None:
        self._file.close()


@contextmanager
def open_files(*paths: Path) -> Iterator[list[WeightFile]]:
    """Open files for a checkpoint; they stay open unless the block fails."""
    files: list[WeightFile] = []
    try:
        for path in paths:
            files.append(WeightFile(path))
        yield files
    except BaseException:
        for file in files:
            file.close()
        raise
