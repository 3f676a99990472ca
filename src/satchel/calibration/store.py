"""Statistics on disk: collected once for a checkpoint and a text, whatever recipe follows."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np

from satchel.calibration.built_in import BUILT_IN
from satchel.calibration.layers import FIRST_TOKEN_SHARE
from satchel.calibration.watch import SeenInput
from satchel.errors import CheckpointError
from satchel.quantize.moments import InputMoments
from satchel.sources.cache import cache_folder, locked, partial_folder, remove_partials

_FORM = 1  # changes when files of another form, or other numbers, are written
_INDEX = "index.json"


def statistics_folder() -> Path:
    """Where statistics are kept, beside the programs of the cache."""
    return cache_folder() / "statistics"


class Statistics:
    """What every linear layer saw, read from the disk one layer at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        document = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        self._files: Mapping[str, str] = document["files"]
        self.tokens: int = document["tokens"]
        self._latest: tuple[str, InputMoments] | None = None

    def moments(self, weight: str) -> InputMoments | None:
        """Of the input that a weight is multiplied with, by the weight's name."""
        # A tied head that is stored apart from the embedding has a name of its own.
        file = self._files.get(weight.removesuffix("#head"))
        if file is None:
            return None
        if self._latest is None or self._latest[0] != file:
            self._latest = file, self._read(file)
        return self._latest[1]

    def _read(self, file: str) -> InputMoments:
        try:
            with np.load(self._folder / file) as arrays:
                channels = len(arrays["mean"])
                second = np.zeros((channels, channels), np.float32)
                second[np.triu_indices(channels)] = arrays["second"]
                second = second + np.triu(second, 1).T
                return InputMoments(second, arrays["largest"], arrays["mean"])
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise CheckpointError(
                f"what was measured of a text is damaged in the cache ({error})",
                f"satchel cache delete {self._folder.name} removes it; the next export measures.",
            ) from None


class Calibration(Protocol):
    """What a model is run on."""

    @property
    def source(self) -> str:
        """As it was named."""

    @property
    def digest(self) -> str:
        """Stands for all of it."""

    @property
    def tokens(self) -> int:
        """How much it is."""


Seen = Callable[[], Iterable[SeenInput]]  # runs the model


def collect_statistics(facts: list[object], used: Calibration, seen: Seen) -> Statistics:
    """Those of a model and what it is run on: from the cache, or by running it.

    ``facts`` tell the checkpoint from others.
    """
    if used.source == BUILT_IN:  # it is short, and files of this size are not left behind unasked
        folder = Path(mkdtemp(prefix="satchel-"))
        try:
            _write(folder, used, seen)
            statistics = Statistics(folder)
        except BaseException:
            shutil.rmtree(folder)
            raise
        weakref.finalize(statistics, shutil.rmtree, folder)
        return statistics
    key = [_FORM, FIRST_TOKEN_SHARE, used.digest, *facts]
    parent = statistics_folder()
    kept = parent / hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    found = _open(kept)
    if found is not None:
        return found
    with locked(parent):
        found = _open(kept)  # another process may have been faster
        if found is not None:
            return found
        remove_partials(parent)
        shutil.rmtree(kept, ignore_errors=True)
        with partial_folder(parent) as partial:
            _write(partial, used, seen)
            os.rename(partial, kept)
    return Statistics(kept)


def _open(folder: Path) -> Statistics | None:
    with suppress(OSError, ValueError, KeyError, TypeError):  # a damaged one is as good as none
        return Statistics(folder)
    return None


def _write(folder: Path, used: Calibration, seen: Seen) -> None:
    files: dict[str, str] = {}
    for number, one in enumerate(seen()):
        file = f"{number:05}.npz"
        arrays: dict[str, Any] = {
            "second": one.moments.second[np.triu_indices(len(one.moments.mean))],
            "largest": one.moments.largest,
            "mean": one.moments.mean,
        }
        np.savez(folder / file, **arrays)
        files |= dict.fromkeys(one.weights, file)
    document = {"files": files, "tokens": used.tokens, "source": used.source}
    (folder / _INDEX).write_text(json.dumps(document), encoding="utf-8")
