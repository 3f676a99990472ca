"""Writing files whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from satchel.errors import OutputExistsError, SatchelError

PARTIAL_PREFIX = ".partial-"
# What a clone without Git LFS has in the place of large files.
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
FETCH_LFS = "Fetch what it stands for: git lfs pull"

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def lines_of(text: str) -> list[str]:
    """The lines of a text file. ``str.splitlines`` would cut a line at some letters in it, too.

    >>> lines_of("one\\u2028line\\r\\nand another\\n")
    ['one\\u2028line', 'and another']
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


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
    try:
        with os.fdopen(_open_new(partial), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not partial.exists():
                _give_name(file.fileno(), partial)
        take_place(partial, path, overwrite)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(partial)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise SatchelError(
                f"{path} could not be written: {error.strerror}",
                "Make room, or choose another place.",
            ) from error
        raise


def _open_new(path: Path) -> int:
    """A new file, without a name where the system can do that; 0o666 less the umask."""
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is not None and os.path.exists("/proc/self/fd"):
        with suppress(OSError):  # not every file system can
            return os.open(path.parent, unnamed | os.O_WRONLY, 0o666)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def _give_name(file: int, path: Path) -> None:
    """For a file that had none until now, so that even a killed process leaves nothing behind."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # With a folder given, Python makes the call that follows /proc's link to the file.
        os.link(f"/proc/self/fd/{file}", path.name, dst_dir_fd=folder)
    finally:
        os.close(folder)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise OutputExistsError if there is something at ``path`` that may not be overwritten.

    Only a file ever is: a device or a pipe would be gone, and a folder cannot be.
    """
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe"
        raise OutputExistsError(f"{path} is {kind}", "Give the name of a file.")
    if not overwrite and (path.exists() or path.is_symlink()):
        raise OutputExistsError(f"{path} exists", "Give another name with -o, or --force.")


def check_output(path: Path, overwrite: bool) -> None:
    """Whether a file that someone named can be written: asked before the work, not after it."""
    refuse_existing(path, overwrite)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise SatchelError(
            f"there is no folder {folder}", "Make it first, or choose another place."
        )
    check_free_space(folder, 0)


def check_free_space(folder: Path, needed: int) -> None:
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        raise SatchelError(f"{folder} is not writable", "Choose another place with -o.")
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SatchelError(
            f"the file takes {needed / 1e6:.0f} MB, and {folder} has {free / 1e6:.0f} MB free",
            "Make room, or choose another place with -o.",
        )


def open_regular(path: str, flags: int) -> int:
    """An ``opener`` for files that others give us: a pipe or a device is an error.

    A pipe that nobody writes to would be waited for, and a device may have no end.
    """
    file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a file", path)
    return file


def take_place(partial: Path, path: Path, overwrite: bool) -> None:
    """Give a finished file its name; one that exists is replaced only if it may be."""
    if overwrite:
        refuse_existing(path, overwrite)
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
