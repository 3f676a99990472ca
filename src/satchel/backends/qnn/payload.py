"""What a program holds for the NPU: compiled binaries, and how they are fed.

The files lie among the program's weights under names that begin with ``qnn/``, so that the
program's checksums cover them. ``qnn/manifest.json`` tells the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from satchel.backends.qnn.manifest import Manifest, damaged
from satchel.errors import ChecksumError
from satchel.runtime.program import Program

PREFIX = "qnn/"
MANIFEST = "manifest.json"


def read_manifest(program: Program) -> Manifest:
    """The manifest of a program that was exported for the NPU."""
    return Manifest.from_json(read_payload(program, MANIFEST))


def payload_names(program: Program) -> list[str]:
    names = [str(w["name"]) for w in program.weights]
    return [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]


def read_payload(program: Program, name: str) -> bytes:
    """One of the files, after checking its checksum."""
    info = next((w for w in program.weights if w["name"] == PREFIX + name), None)
    if info is None or info["encoding"] != "u8":
        raise damaged(f"there is no {name} for the NPU in {program.path}")
    data = np.fromfile(program.path, np.uint8, info["codes_size"], offset=info["offset"]).tobytes()
    if hashlib.sha256(data).digest() != info["digest"]:
        raise ChecksumError(
            f"the bytes of {name} are not those that were written",
            "Copy or export the file again.",
            "weights",
            info["offset"],
        )
    return data


def extract(program: Program, folder: Path) -> list[Path]:
    """Write all files but the manifest into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in payload_names(program):
        if name == MANIFEST:
            continue
        if Path(name).name != name or name.startswith("."):
            raise damaged(f"{name!r} is not a file name")
        (folder / name).write_bytes(read_payload(program, name))
        written.append(folder / name)
    return written


def named_files(files: Mapping[str, Path]) -> dict[str, Path]:
    """Files under the names that they get in a program."""
    return {PREFIX + name: path for name, path in sorted(files.items())}
