"""What a program's metadata may hold: checked once, when it is read, so that nothing trips later.

Everything may be missing or null, and what is not named here may be anything: it is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Each:
    """A list, or the values of an object, of one kind."""

    holder: type
    kind: Any


SCHEMA: dict[str, Any] = {
    "satchel_version": str,
    "kind": str,
    "name": str,
    "architecture": str,
    "parameters": int,
    "target": str,
    "targets": Each(list, str),
    "context": int,
    "mels": int,
    "alignment_heads": Each(list, Each(list, int)),
    "mode": str,
    "prefill_ar_len": int,
    "vocab_size": int,
    "lookahead": dict,
    "generation": dict,
    "recipe": {"name": str, "description": str, "group_size": int},
    "adapters": Each(list, str),
    "pooling": str,
    "runner": dict,
    "placement": {
        "nodes": Each(dict, int),
        "fallbacks": Each(list, {"op": str, "reason": str, "nodes": int}),
    },
    "weight_error": Each(dict, float),
    "layer_error": Each(dict, Each(list, float)),
    "layer_snr_db": Each(dict, float),
    "kept_in_float": Each(list, str),
    "output_snr_db": float,
    "in_16_bits": Each(list, str),
    "provenance": {"format": str, "file": str},
    "tokenizer": dict,
    "vision": dict,
    "text": dict,
    "images": {"token": int, "rows": int, "preprocessing": dict},
    "payloads": Each(dict, dict),
}
_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
}
_LARGEST = 1 << 63


def wrong_values(document: dict[str, Any]) -> Iterator[str]:
    """What is not of its kind, in words.

    >>> list(wrong_values({"name": 5, "placement": {"nodes": {"cpu": "many"}}}))
    ['name is not a text', 'placement.nodes.cpu is not a whole number']
    """
    yield from _wrong(document, SCHEMA, "")


def _wrong(value: Any, kind: Any, where: str) -> Iterator[str]:
    if value is None:
        return
    holder = kind.holder if isinstance(kind, Each) else dict if isinstance(kind, dict) else kind
    if not _is(value, holder):
        yield f"{where} is not {_NAMES[holder]}"
        return
    dot = f"{where}." if where else ""
    if isinstance(kind, Each):
        for key, item in value.items() if holder is dict else enumerate(value):
            yield from _wrong(item, kind.kind, f"{dot}{key}")
            if item is None:
                yield f"{dot}{key} is missing"
    elif isinstance(kind, dict):
        for key in kind:
            yield from _wrong(value.get(key), kind[key], f"{dot}{key}")


def _is(value: Any, kind: type) -> bool:
    if kind is int:
        return type(value) is int and 0 <= value < _LARGEST
    if kind is float:  # JSON has NaN and infinity too, for what could not be measured
        return type(value) is float or (type(value) is int and abs(value) < _LARGEST)
    return isinstance(value, kind)
