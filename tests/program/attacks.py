"""What the attacks share: a good program to damage, and what must come of the damage."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from satchel.errors import ChecksumError, ProgramFormatError
from satchel.runtime.program import Program
from support import program_file as fm
from support.small_program import write_small_program


@functools.cache
def good_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_small_program(Path(folder) / "good.satchel").read_bytes()


def good_model() -> fm.Model:
    return fm.read(good_bytes())


def refused(folder: Path, data: bytes, section: str, message: str = "") -> ProgramFormatError:
    """The error that loading these bytes raises, which names a section and gives advice."""
    path = folder / "attack.satchel"
    path.write_bytes(data)
    with pytest.raises(ProgramFormatError) as caught:
        Program(path)
    error = caught.value
    assert (error.section, message in error.message) == (section, True), str(error)
    assert error.message and error.advice and 0 <= error.offset <= max(len(data), 64)
    return error


def not_by_checksum(error: ProgramFormatError) -> None:
    """The structure itself was refused: the checksums are right."""
    assert not isinstance(error, ChecksumError), str(error)
