"""Files to a device and back, through its shell: checked, and resumed where they were cut off.

What has arrived lies in ``FILE.part`` until all of it is there and its checksum is right. A part
that is there already is used if its bytes are the beginning of the file.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from satchel.errors import DeviceError, InputError
from satchel.progress import Progress
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.devices.device import ShellDevice


_BLOCK = 1 << 20
_AGAIN = "Run the same command again: it goes on where this one ended."

# What there is: room in kilobytes, the checksum of the file, size and checksum of a part.
_LOOK = """
mkdir -p {folder} || exit 3
( : > {part}.probe ) || exit 3
rm -f {part}.probe
echo free $(df -Pk {folder} | tail -n 1)
[ -f {place} ] && echo whole $(sha256sum < {place})
[ -f {part} ] && echo part $(wc -c < {part}) $(sha256sum < {part})
exit 0
"""


def push_file(
    device: ShellDevice, path: Path, place: str, progress: Progress | None = None
) -> None:
    """See :meth:`ShellDevice.push`."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", "Check the path.")
    size, part = path.stat().st_size, f"{place}.part"
    there = _look(device, place)
    arrived = int(there["part"][0]) if "part" in there else 0
    free = int(there["free"][3]) * 1024
    checksum = _checksum(path) if "whole" in there else ""
    if checksum and there["whole"][0] == checksum:
        return
    if free + arrived < size:
        _refuse(f"{device.name} has {megabytes(free)} free in {device.folder}", path.name, size)
    checksum = checksum or _checksum(path)  # which takes a while, so room is asked for before
    start = arrived if 0 < arrived <= size and there["part"][1] == _checksum(path, arrived) else 0
    _send(device, path, part, start, progress)
    mode = "755" if path.stat().st_mode & 0o100 else "644"
    quoted = shlex.quote(part)
    done = device.shell(
        f"[ $(sha256sum < {quoted} | cut -d ' ' -f 1) = {checksum} ] && chmod {mode} {quoted} "
        f"&& mv -f {quoted} {shlex.quote(place)}"
    )
    if done.status != 0:
        device.run(["rm", "-f", part])
        raise DeviceError(
            f"{path.name} did not arrive whole on {device.name} {done.errors}".rstrip(),
            "Run the same command again.",
        )


def pull_file(
    device: ShellDevice, place: str, path: Path, progress: Progress | None = None
) -> Path:
    """See :meth:`ShellDevice.pull`."""
    if path.is_dir():
        path = path / place.rsplit("/", 1)[-1]
    quoted = shlex.quote(place)
    done = device.shell(f"wc -c < {quoted} && sha256sum < {quoted}")
    if done.status != 0:
        raise DeviceError(f"{device.name} cannot read {place}: {done.errors}", "Check the path.")
    words = done.output.decode().split()
    size, checksum = int(words[0]), words[1]
    if path.is_file() and _checksum(path) == checksum:
        return path
    part = path.with_name(path.name + ".part")
    start = _arrived(device, quoted, part, size)
    free = shutil.disk_usage(path.parent).free
    if free + start < size:
        _refuse(f"{megabytes(free)} are free in {path.parent}", place, size)
    with open(part, "ab" if start else "wb") as file:
        _receive(device, f"tail -c +{start + 1} {quoted}", file, start, size, progress)
    if _checksum(part) != checksum:
        part.unlink()
        raise DeviceError(
            f"{place} of {device.name} did not arrive whole", "Run the same command again."
        )
    part.replace(path)
    return path


def _refuse(room: str, name: str, size: int) -> NoReturn:
    raise DeviceError(
        f"{room}, and {name} has {megabytes(size)}",
        "Make room there, or choose another folder (--folder).",
    )


def _look(device: ShellDevice, place: str) -> dict[str, list[str]]:
    folder = place.rsplit("/", 1)[0]
    part = shlex.quote(f"{place}.part")
    done = device.shell(
        _LOOK.format(folder=shlex.quote(folder), place=shlex.quote(place), part=part)
    )
    found = {line[0]: line[1:] for line in map(str.split, done.output.decode().splitlines())}
    if done.status != 0 or len(found.get("free", [])) < 4:
        raise DeviceError(
            f"{device.name} cannot write into {folder}: {done.errors or 'no reason given'}",
            "Choose a folder that can be written, with --folder.",
        )
    return found


def _send(
    device: ShellDevice, path: Path, part: str, start: int, progress: Progress | None
) -> None:
    script = f"cat {'>>' if start else '>'} {shlex.quote(part)}"
    size, sent = path.stat().st_size, start
    process = device.pipe(script, sends=True)
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):  # the reason is in what it says, below
            for block in _blocks(path, start):
                process.stdin.write(block)
                sent += len(block)
                if progress:
                    progress(f"Sending {path.name}", sent, size)
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        status, errors = _end(process)
    if status != 0:
        device.require_reached(status, errors)
        raise DeviceError(f"{path.name} was cut off on {device.name}: {errors}", _AGAIN)


def _receive(
    device: ShellDevice,
    script: str,
    file: IO[bytes],
    start: int,
    size: int,
    progress: Progress | None,
) -> None:
    process = device.pipe(script, sends=False)
    assert process.stdout is not None
    try:
        while block := process.stdout.read(_BLOCK):
            file.write(block)
            start += len(block)
            if progress:
                progress("Receiving", start, size)
    finally:
        status, errors = _end(process)
    if status != 0 or start < size:
        device.require_reached(status, errors)
        raise DeviceError(f"what {device.name} sent was cut off: {errors}", _AGAIN)


def _end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert process.stderr is not None
    if process.stdout is not None:
        process.stdout.close()
    errors = process.stderr.read().decode(errors="replace").strip()
    return process.wait(), errors


def _arrived(device: ShellDevice, quoted: str, part: Path, size: int) -> int:
    """How much of a file a part has, if it is the beginning of it."""
    arrived = part.stat().st_size if part.is_file() else 0
    if not 0 < arrived <= size:
        return 0
    done = device.shell(f"head -c {arrived} {quoted} | sha256sum")
    return arrived if done.output.decode().split()[:1] == [_checksum(part)] else 0


def _checksum(path: Path, size: int | None = None) -> str:
    """Of a file, or of its first bytes."""
    digest = hashlib.sha256()
    left = path.stat().st_size if size is None else size
    for block in _blocks(path, 0):
        digest.update(block[:left])
        left -= len(block)
        if left <= 0:
            break
    return digest.hexdigest()


def _blocks(path: Path, start: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        while block := file.read(_BLOCK):
            yield block
