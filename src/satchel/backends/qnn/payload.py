"""What a program holds for the NPU: compiled binaries, and how they are fed.

The files lie among the program's weights under names that begin with the target's, so that the
program's checksums cover them. ``manifest.json`` tells the rest.
"""

from __future__ import annotations

from pathlib import Path

from satchel.backends.qnn.manifest import Manifest, damaged
from satchel.runtime.program import Program

MANIFEST = "manifest.json"


def read_manifest(program: Program) -> Manifest:
    """The manifest of a program that was exported for the NPU."""
    return Manifest.from_json(program.payload(MANIFEST))


def extract(program: Program, folder: Path) -> list[Path]:
    """Write all files but the manifest into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in program.payload_names():
        if name == MANIFEST:
            continue
        if Path(name).name != name or name.startswith("."):
            raise damaged(f"{name!r} is not a file name")
        (folder / name).write_bytes(program.payload(name))
        written.append(folder / name)
    return written
