"""Where finished exports are kept so that all machines of a sweep see them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from satchel.errors import ConfigError
from satchel.files import atomic_write
from satchel.sources.cache import cache_folder


class Store(Protocol):
    """Files by name. What has a name there is whole."""

    address: str

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""

    def find(self, name: str) -> Path | None:
        """A file as one of this machine, or None if there is none of that name."""

    def place(self, name: str) -> Path:
        """Where to write a file on this machine before it is kept."""

    def keep(self, name: str) -> None:
        """Show all machines the file that was written to its place."""


class FolderStore:
    """A folder: on one machine, or one that all of them mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.address = str(self.folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"{folder} is not a folder", "Give another one with --store.")
        self.folder.mkdir(parents=True, exist_ok=True)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def find(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.exists() else None

    def place(self, name: str) -> Path:
        return self.folder / name

    def keep(self, name: str) -> None:
        """It is there already: files are written whole or not at all."""


class ObjectStore:
    """Any place that fsspec knows: ``s3://bucket/folder``, ``gs://…``, ``memory://…``."""

    def __init__(self, address: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise ConfigError(
                f"{address} needs fsspec", "pip install 'satchel[sweep]', or use a folder."
            ) from None
        self.address = address
        try:
            self.files, self.root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{address} cannot be opened: {error}") from None
        place = address.replace("://", "-").replace("/", "-").strip("-")
        self.local = FolderStore(cache_folder() / "stores" / place)

    def has(self, name: str) -> bool:
        return self.local.has(name) or bool(self.files.exists(f"{self.root}/{name}"))

    def find(self, name: str) -> Path | None:
        here = self.local.find(name)
        if here is not None:
            return here
        there = f"{self.root}/{name}"
        if not self.files.exists(there):
            return None
        with atomic_write(self.local.place(name)) as file, self.files.open(there, "rb") as source:
            while block := source.read(1 << 22):
                file.write(block)
        return self.local.place(name)

    def place(self, name: str) -> Path:
        return self.local.place(name)

    def keep(self, name: str) -> None:
        # Object stores show a file when all of it has come; file systems get it by a rename.
        self.files.makedirs(self.root, exist_ok=True)
        partial = f"{self.root}/.partial-{os.getpid()}-{name}"
        self.files.put_file(str(self.local.place(name)), partial)
        self.files.mv(partial, f"{self.root}/{name}")


def open_store(address: str) -> Store:
    """A store by its address: a folder's path, or a URL that fsspec understands.

    >>> open_store("artefacts").find("nothing.satchel")
    """
    return ObjectStore(address) if "://" in address else FolderStore(Path(address))


def read_facts(store: Store, name: str) -> dict[str, Any] | None:
    """What was written down about an export, if it is whole."""
    path = store.find(f"{name}.json")
    with suppress(ValueError, RecursionError, TypeError):  # damaged ones are as good as none
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path else None
    return None


def keep_facts(store: Store, name: str, facts: dict[str, Any]) -> None:
    """Write down what an export took; it counts as done from now on."""
    with atomic_write(store.place(f"{name}.json")) as file:
        file.write(json.dumps(facts).encode())
    store.keep(f"{name}.json")
