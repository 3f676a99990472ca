"""What files hold, as digests: two exports of the same bytes with the same options are one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.sources.cache import cache_folder, file_facts

_BLOCK = 1 << 22


def digest_of(document: Any) -> str:
    """A short name for a document, whatever the order of its keys.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(document, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def content_digest(path: Path) -> str:
    """Of a file, or of the files in a folder by their names; kept as long as they stay the same."""
    memory = cache_folder() / "digests" / f"{digest_of(file_facts(path))}.txt"
    if memory.exists():
        return memory.read_text()
    files = sorted(f for f in path.iterdir() if f.is_file()) if path.is_dir() else [path]
    whole = hashlib.sha256()
    for file in files:
        if path.is_dir():
            if file.name.startswith("."):
                continue
            whole.update(f"{file.name}\0".encode())
        with file.open("rb") as stream:
            part = hashlib.sha256()
            while block := stream.read(_BLOCK):
                part.update(block)
        whole.update(part.digest())
    memory.parent.mkdir(parents=True, exist_ok=True)
    memory.write_text(whole.hexdigest())
    return whole.hexdigest()


def with_contents(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in which what is the path of a file or a folder is replaced by what it holds."""
    return {key: _content(value) for key, value in options.items()}


def _content(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _content(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_content(item) for item in value]
    if isinstance(value, str) and value.startswith("/") and Path(value).exists():
        return f"content:{content_digest(Path(value))}"
    return value
