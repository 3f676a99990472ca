"""Files appear whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from satchel.errors import OutputExistsError
from satchel.files import atomic_write


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "file"
    with atomic_write(target) as file:
        file.write(b"first")
        assert not target.exists()
    assert target.read_bytes() == b"first"
    assert os.listdir(target.parent) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), atomic_write(tmp_path / "file") as file:
        file.write(b"half")
        raise error
    assert os.listdir(tmp_path) == []


def test_an_interruption_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(ValueError), atomic_write(target) as file:
        file.write(b"new")
        raise ValueError
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_overwriting_has_to_be_allowed(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with (
        pytest.raises(OutputExistsError, match=r"exists.*overwrite=True"),
        atomic_write(target, overwrite=False),
    ):
        raise AssertionError("it was let in")
    with atomic_write(target, overwrite=True) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"


def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with (
        pytest.raises(OutputExistsError),
        atomic_write(target, overwrite=False) as file,
    ):
        file.write(b"ours")
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs" and os.listdir(tmp_path) == ["file"]


def test_without_hard_links_a_rename_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_paths: object) -> None:
        raise OSError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)  # such a system has no unnamed files either
    with atomic_write(tmp_path / "file", overwrite=False) as file:
        file.write(b"ours")
    assert os.listdir(tmp_path) == ["file"]


def test_a_dangling_link_is_something_that_exists(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputExistsError), atomic_write(tmp_path / "file", overwrite=False):
        pass


@pytest.mark.skipif(os.name != "posix", reason="umask is a thing of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_rights_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from satchel.errors import SatchelError
from satchel.files import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with atomic_write(Path(sys.argv[1])) as file:
        for _ in range(100):
            file.write(bytes(10_000))
except SatchelError as error:
    print(error.message, "|", error.advice)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a limit on the size of files")
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "file")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "could not be written" in result.stdout and "Make room" in result.stdout
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("overwrite", [True, False])
def test_only_files_are_replaced(overwrite: bool, tmp_path: Path) -> None:
    """A device, a pipe or a folder stays what it is, for root too."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, kind in (("pipe", "device or a pipe"), ("folder", "a folder")):
        with (
            pytest.raises(OutputExistsError, match=kind),
            atomic_write(tmp_path / name, overwrite) as file,
        ):
            file.write(b"x")
    with pytest.raises(OutputExistsError, match="device"), atomic_write(Path("/dev/full")):
        pass
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()
