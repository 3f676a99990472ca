"""Writing files whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from satchel.errors import OutputExistsError, SatchelError

PARTIAL_PREFIX = ".partial-"

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_write(path: Path, overwrite: bool = True) -> Iterator[IO[bytes]]:
    """A file to write to that takes ``path``'s place at the end, and vanishes on an error.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with atomic_write(target) as file:
    ...     _ = file.write(b"whole or not at all")
    ...     target.exists()
    False
    >>> target.read_bytes()
    b'whole or not at all'
    """
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent / f"{PARTIAL_PREFIX}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        # 0o666 less the umask: the rights of any new file.
        with os.fdopen(os.open(partial, flags, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _take_place(partial, path, overwrite)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(partial)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise SatchelError(
                f"{path} could not be written: {error.strerror}",
                "Make room, or choose another place.",
            ) from error
        raise


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise OutputExistsError if there is something at ``path`` that may not be overwritten."""
    if not overwrite and (path.exists() or path.is_symlink()):
        raise OutputExistsError(f"{path} exists", "Give another name with -o, or --force.")


def _take_place(partial: Path, path: Path, overwrite: bool) -> None:
    if overwrite:
        os.replace(partial, path)
        return
    try:
        os.link(partial, path)  # unlike a rename, it fails if the name has been taken meanwhile
    except FileExistsError:
        refuse_existing(path, overwrite)
        raise
    except OSError:  # a file system without hard links
        refuse_existing(path, overwrite)
        os.replace(partial, path)
    else:
        os.unlink(partial)
