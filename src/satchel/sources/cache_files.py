"""What the cache folder holds: fetched checkpoints, programs made of them, and the rest."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from satchel.files import PARTIAL_PREFIX
from satchel.sources.cache import cache_folder

_KINDS = {"checkpoints": "checkpoint", "programs": "program"}
_PROGRAM = re.compile(r"(?P<stem>.+)-[0-9a-f]{12}\.satchel")


@dataclass(frozen=True)
class CachedFile:
    """A file or folder of the cache."""

    name: str
    kind: str  # "checkpoint", "program", or the folder that it lies in
    path: Path
    size: int
    used: datetime  # when it was written
    replaced: bool  # a newer one stands for the same, or it was left half-done

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "path": str(self.path),
            "size_bytes": self.size,
            "written": self.used.isoformat(timespec="seconds"),
            "replaced": self.replaced,
        }


def cached_files() -> list[CachedFile]:
    """All of it, the largest first.

    Of programs with one name, made of one model with one recipe, only the newest is in use: the
    others are of an older version of Satchel or of the checkpoint.
    """
    folder = cache_folder()
    found = []
    for part in sorted(folder.iterdir()) if folder.is_dir() else ():
        paths = sorted(part.iterdir()) if part.is_dir() else [part]
        for path in paths:
            if path.name != ".lock":
                kind = _KINDS.get(part.name, part.name if part.is_dir() else "file")
                found.append(_describe(path, kind))
    newest: dict[str, CachedFile] = {}
    for file in found:
        stem = _stem(file)
        if stem not in newest or file.used > newest[stem].used:
            newest[stem] = file
    marked = [
        CachedFile(f.name, f.kind, f.path, f.size, f.used, f.replaced or newest[_stem(f)] is not f)
        for f in found
    ]
    return sorted(marked, key=lambda f: -f.size)


def delete_files(files: list[CachedFile]) -> None:
    for file in files:
        if file.path.is_dir() and not file.path.is_symlink():
            shutil.rmtree(file.path)
        else:
            file.path.unlink(missing_ok=True)


def _describe(path: Path, kind: str) -> CachedFile:
    inside = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    size = sum(p.lstat().st_size for p in inside)
    used = datetime.fromtimestamp(path.lstat().st_mtime)
    return CachedFile(path.name, kind, path, size, used, path.name.startswith(PARTIAL_PREFIX))


def _stem(file: CachedFile) -> str:
    match = _PROGRAM.fullmatch(file.name) if file.kind == "program" else None
    return match["stem"] if match else str(file.path)
