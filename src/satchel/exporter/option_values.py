"""Values of an export's options that are more than a word or a number: how they are read and what
they may be."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from satchel.errors import ConfigError
from satchel.options import Kind

_ADAPTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# What `metadata` may override, and the field of the tokenizer that it sets. Any other key is for
# the runner of somebody's, and is passed on.
METADATA = {"get_bos_id": "bos_id", "get_eos_id": "eos_ids", "get_eos_ids": "eos_ids"}
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")


def _targets(names: list[str] | str) -> str:
    return names if isinstance(names, str) else ",".join(names)


NAMES = Kind(str, (str, list), _targets, _targets)  # of targets


def parse_embedding(text: str) -> tuple[int, int]:
    """
    >>> parse_embedding("8,0")
    (8, 0)
    """
    parts = text.split(",")
    if len(parts) != 2 or not all(p.strip().isdigit() for p in parts):
        raise ConfigError(f"{text!r} is not BITS,GROUP", "Write for example 4,32 or 8,0.")
    return int(parts[0]), int(parts[1])


def split_adapter(text: str) -> tuple[str, str]:
    """
    >>> split_adapter("fr=./french-lora")
    ('fr', './french-lora')
    """
    name, equals, folder = text.partition("=")
    if not equals or not folder:
        raise ConfigError(f"{text!r} is not NAME=FOLDER", "Write for example fr=./french-lora.")
    check_adapter_name(name)
    return name, folder


def check_adapter_name(name: str) -> None:
    if not _ADAPTER.fullmatch(name) or name == "none":
        raise ConfigError(
            f"{name!r} is not a name for an adapter",
            "Use letters, digits, dots, dashes and underscores; none stands for no adapter.",
        )


def texts_in(value: object) -> Iterator[str]:
    """The texts in an option's value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (*texts_in(key), *texts_in(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def check_metadata(metadata: Mapping[str, Any]) -> None:
    for key, value in metadata.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ConfigError(f"{key!r} is not a name for metadata", "For example get_bos_id.")
        near = difflib.get_close_matches(key, METADATA, 1, cutoff=0.9)
        if near and key not in METADATA:  # what is passed on would not be missed by anybody
            raise ConfigError(
                f"the metadata has the unknown key {key!r}", f"Did you mean {near[0]!r}?"
            )
        items = value if isinstance(value, list) else [value]
        if not all(item is None or isinstance(item, (str, int, float)) for item in items):
            raise ConfigError(f"{key} must be a number, a text or a list of these, not {value!r}")
        if any(isinstance(item, float) and not math.isfinite(item) for item in items):
            raise ConfigError(f"{key} is not a finite number: {value!r}", "JSON has no others.")

    def is_id(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0

    for key in ("get_bos_id", "get_eos_id"):
        if metadata.get(key) is not None and not is_id(metadata[key]):
            raise ConfigError(f"{key} must be a token id, not {metadata[key]!r}")
    ends = metadata.get("get_eos_ids")
    if ends is not None and not (isinstance(ends, list) and ends and all(map(is_id, ends))):
        raise ConfigError(f"get_eos_ids must be a list of token ids, not {ends!r}")
