"""Decoding of one token after the other, at a cost that does not grow with the text.

What comes out, all together, is what the tokenizer's own ``decode`` gives for all tokens. The
two decoders that language models have are done here step by step; `tokenizers`' ``DecodeStream``
is not used as it shows characters that a later byte takes back.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Any, Protocol

from satchel.llm.tokenizer import Tokenizer
from satchel.llm.tokenizer_sources.byte_level import CHAR_TO_BYTE

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LETTERS = {"Replace": "r", "ByteFallback": "b", "Fuse": "f", "Strip": "s"}
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class TokenDecoder(Protocol):
    """Takes tokens, gives text that will not change any more."""

    def push(self, token_id: int) -> str: ...

    def finish(self) -> str: ...


def make_decoder(tokenizer: Tokenizer, after: Sequence[int] = ()) -> TokenDecoder:
    """The decoder for a tokenizer, to go on from the text of the tokens ``after``."""
    steps = tokenizer.decoder_steps()
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return ByteLevelDecoder(tokenizer)
    pattern = "".join(_LETTERS.get(kind, "?") for kind in kinds)
    replacements = [step for step in steps if step["type"] == "Replace"]
    if re.fullmatch("r*b?(fs?)?", pattern) and all("String" in r["pattern"] for r in replacements):
        strip = steps[-1] if pattern.endswith("s") else None
        if strip is None or strip["stop"] == 0:
            return PieceDecoder(tokenizer, replacements, "b" in pattern, strip, after)
    return WindowDecoder(tokenizer, after)


def token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    """What one token adds to a text, special ones as they are written; maybe half a character."""
    token = tokenizer.visible_token(token_id)
    if token is None:
        return tokenizer.decode([token_id], skip_special=False).encode("utf-8")
    steps = tokenizer.decoder_steps()
    if [step["type"] for step in steps] == ["ByteLevel"]:
        return byte_level_bytes(token)
    for step in steps:
        if step["type"] == "Replace" and "String" in step["pattern"]:
            token = token.replace(step["pattern"]["String"], step["content"])
    if any(step["type"] == "ByteFallback" for step in steps):
        if byte := _BYTE_PIECE.fullmatch(token):
            return bytes([int(byte[1], 16)])
        return token.encode("utf-8")
    return tokenizer.decode([token_id], skip_special=False).encode("utf-8")


def byte_level_bytes(token: str) -> bytes:
    """
    >>> byte_level_bytes("\u0120hi")
    b' hi'
    """
    try:
        return bytes([CHAR_TO_BYTE[char] for char in token])
    except KeyError:  # an added token that is stored as plain text
        return token.encode("utf-8")


class ByteLevelDecoder:
    """Each character of a token is a byte; the bytes together are UTF-8."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        token = self._tokenizer.visible_token(token_id)
        if token is None:
            return ""
        return self._utf8.decode(byte_level_bytes(token))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class PieceDecoder:
    """Sentencepiece's way: a mark for the space, and bytes as tokens of their own.

    A run of byte tokens is text only if all of it is valid, so it is held until it ends.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        replacements: list[dict[str, Any]],
        byte_fallback: bool,
        strip: dict[str, Any] | None,
        after: Sequence[int],
    ) -> None:
        self._tokenizer = tokenizer
        self._replacements = [(r["pattern"]["String"], r["content"]) for r in replacements]
        self._byte_fallback = byte_fallback
        self._run = bytearray()
        at_start = all(tokenizer.visible_token(token_id) is None for token_id in after)
        self._strip_left = strip["start"] if strip and at_start else 0
        self._strip_char = strip["content"] if strip else ""

    def push(self, token_id: int) -> str:
        token = self._tokenizer.visible_token(token_id)
        if token is None:
            return ""
        for old, new in self._replacements:
            token = token.replace(old, new)
        if self._byte_fallback and (byte := _BYTE_PIECE.fullmatch(token)):
            self._run.append(int(byte[1], 16))
            return ""
        return self._strip(self._end_run() + token)

    def finish(self) -> str:
        return self._strip(self._end_run())

    def _end_run(self) -> str:
        run = bytes(self._run)
        self._run.clear()
        try:
            return run.decode("utf-8")
        except UnicodeDecodeError:
            return _UNKNOWN * len(run)

    def _strip(self, text: str) -> str:
        while self._strip_left and text:
            if not text.startswith(self._strip_char):
                self._strip_left = 0
                break
            text = text[len(self._strip_char) :]
            self._strip_left -= 1
        return text


class WindowDecoder:
    """For all other decoders: decode the last tokens twice and give the difference."""

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(after[-4:])
        self._shown = len(self._window)  # so many tokens of the window are text already

    def push(self, token_id: int) -> str:
        self._window.append(token_id)
        fresh = self._fresh()
        if not fresh or fresh.endswith(_UNKNOWN):
            return ""
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        return fresh

    def finish(self) -> str:
        return self._fresh()

    def _fresh(self) -> str:
        before = self._tokenizer.decode(self._window[: self._shown])
        return self._tokenizer.decode(self._window)[len(before) :]
