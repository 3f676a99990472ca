"""Byte-level BPE, the form of GPT-2 and all its heirs: each byte is written as one character."""

from __future__ import annotations

from typing import Any

from satchel.llm.tokenizer_sources.tokenizers_json import sequence


def _byte_alphabet() -> list[str]:
    # Bytes that print stand for themselves; the others move, in order, behind U+0100.
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printing else chr(next(moved)) for byte in range(256)]


BYTE_TO_CHAR = _byte_alphabet()
CHAR_TO_BYTE = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}
_LATIN_TO_ALPHABET = dict(enumerate(BYTE_TO_CHAR))

DECODER: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}


def write_bytes(data: bytes) -> str:
    """Bytes as byte-level text.

    >>> write_bytes(b" a")
    'Ġa'
    """
    return data.decode("latin-1").translate(_LATIN_TO_ALPHABET)


def pre_tokenizer(patterns: tuple[str, ...]) -> dict[str, Any]:
    """Split by each pattern in turn, matches and what lies between them alike, then to bytes."""
    splits = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
        for one in patterns
    ]
    steps = sequence([*splits, DECODER], "pretokenizers")
    assert steps is not None
    return steps
