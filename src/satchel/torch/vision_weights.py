"""Torchvision's weights: by their name, fetched where there is a network, or from a file."""

from __future__ import annotations

import hashlib
import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.errors import CheckpointError, DownloadError
from satchel.files import atomic_write
from satchel.progress import Progress, usual_progress

DEFAULT = "DEFAULT"
_SUFFIXES = (".pth", ".pt", ".safetensors", ".gguf", ".bin")
_DIGEST = re.compile(r"-([0-9a-f]{8,})\.")  # torchvision's file names hold the start of their hash
_BLOCK = 1 << 20
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class FoundWeights:
    """A file of weights, and the entry of torchvision whose labels and preprocessing it has."""

    entry: Any
    path: Path


def find_weights(
    entries: Any, name: str, wanted: str | None, folder: Path, progress: Progress | None = None
) -> FoundWeights:
    """The weights that ``wanted`` names: DEFAULT, IMAGENET1K_V1, …, or a file.

    ``entries`` is torchvision's list for the model; ``folder`` is where it keeps what it fetched.
    """
    names = [*entries.__members__, DEFAULT]
    if wanted is None or wanted.upper() in names:
        entry = entries[(wanted or DEFAULT).upper()]
        return FoundWeights(entry, fetched(str(entry.url), folder, name, progress))
    path = Path(wanted).expanduser()
    if not path.exists() and path.suffix not in _SUFFIXES and path.name == wanted:
        listed = ", ".join(dict.fromkeys(names))
        raise CheckpointError(
            f"torchvision has no weights {wanted!r} of {name}", f"It has {listed}; or give a file."
        )
    return FoundWeights(entry_of(entries, path), path)


def entry_of(entries: Iterable[Any], path: Path) -> Any:
    """The entry whose file it is, by its name; the usual one for a file of another name."""
    same = [entry for entry in entries if _file_name(str(entry.url)) == path.name]
    return same[0] if same else entries.DEFAULT  # type: ignore[attr-defined]


def fetched(url: str, folder: Path, name: str, progress: Progress | None = None) -> Path:
    """The file of an address in torchvision's cache; it is downloaded if it is not there."""
    path = folder / _file_name(url)
    if path.is_file():
        return path
    tell = progress or usual_progress()
    digest = hashlib.sha256()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply, atomic_write(path) as file:
            size, done = int(reply.headers.get("Content-Length") or 0), 0
            while block := reply.read(_BLOCK):
                file.write(block)
                digest.update(block)
                done += len(block)
                tell(f"Fetching {path.name}", done, max(size, done))
            _check(path.name, digest.hexdigest())
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(
            f"the weights of {name} are not in torchvision's cache and cannot be fetched "
            f"({url}: {reason})",
            "Give --weights FILE (.pth, .safetensors or .gguf), or --random-weights to try.",
        ) from error
    return path


def _check(name: str, digest: str) -> None:
    """What a file's name says of its content; a wrong one is never given its name."""
    match = _DIGEST.search(name)
    if match and not digest.startswith(match[1]):
        raise DownloadError(
            f"{name} was fetched and has another checksum ({digest[:8]}…)", "Try again later."
        )


def _file_name(url: str) -> str:
    return url.rsplit("/", 1)[-1]
