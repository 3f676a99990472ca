"""Whisper's words: tokens as text, text as tokens, and which tokens are no speech."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from functools import cached_property

from satchel.llm.tokenizer import Tokenizer, TokenizerSpec
from satchel.llm.tokenizer_sources.byte_level import CHAR_TO_BYTE
from satchel.runtime.program import Program
from satchel.speech.tokens import Tokens

# Marks that stand for sounds and speakers, and not for words.
_MARKS = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *"<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split(),
]
_NOTES = "♩♪♫♬♭♮♯"  # in several tokens, of which the first is theirs alone
_UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")  # languages that write no spaces


class Vocabulary:
    """The tokenizer of a program, and its special tokens."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self.tokenizer = tokenizer
        self.special = Tokens.of_vocabulary(size)
        self._bytes: dict[int, bytes] = {}

    @staticmethod
    def of(program: Program) -> Vocabulary:
        meta = program.metadata
        spec = TokenizerSpec.from_dict(meta["tokenizer"], program.section("tokenizer").decode())
        return Vocabulary(Tokenizer(spec), meta["vocab_size"])

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_bos=False, parse_special=False)

    def text(self, tokens: Iterable[int]) -> str:
        """What words say; special tokens say nothing."""
        parts = [self._bytes_of(token) for token in tokens if token < self.special.end]
        return b"".join(parts).decode("utf-8", "replace")

    def _bytes_of(self, token: int) -> bytes:
        if token not in self._bytes:
            shown = self.tokenizer.name_of(token) or ""
            self._bytes[token] = bytes(CHAR_TO_BYTE[c] for c in shown if c in CHAR_TO_BYTE)
        return self._bytes[token]

    @cached_property
    def blank(self) -> list[int]:
        """What a text must not begin with: nothing."""
        return [*self.encode(" "), self.special.end]

    @cached_property
    def unspoken(self) -> list[int]:
        """Tokens that are never chosen: marks of sounds and speakers, and special ones."""
        found = {self.encode(" -")[0], self.encode(" '")[0]}
        for mark in (*_MARKS, *_NOTES):
            for tokens in (self.encode(mark), self.encode(f" {mark}")):
                if len(tokens) == 1 or mark in _NOTES:
                    found.add(tokens[0])
        s = self.special
        marks = (s.transcribe, s.translate, s.start, s.start_of_previous, s.start_of_lm)
        return sorted({*found, *marks, s.no_speech})

    def words(self, tokens: Sequence[int], language: str | None) -> list[tuple[str, list[int]]]:
        """Words with their tokens; the end of a text is one of its own."""
        pieces = self._pieces(tokens)
        if language in _UNSPACED:
            return pieces
        words: list[tuple[str, list[int]]] = []
        for text, part in pieces:
            alone = part[0] >= self.special.end or text.strip() in string.punctuation
            if alone or text.startswith(" ") or not words:
                words.append((text, part))
            else:
                words[-1] = words[-1][0] + text, words[-1][1] + part
        return words

    def _pieces(self, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
        """The least runs of tokens that are whole characters."""
        pieces: list[tuple[str, list[int]]] = []
        waiting: list[int] = []
        whole, at = self._shown(tokens), 0
        for token in tokens:
            waiting.append(token)
            text = self._shown(waiting)
            mark = text.find("\ufffd")
            # A mark of damage may also be what the text says.
            if mark < 0 or (at + mark < len(whole) and whole[at + mark] == "\ufffd"):
                pieces.append((text, waiting))
                waiting, at = [], at + len(text)
        return pieces

    def _shown(self, tokens: Iterable[int]) -> str:
        parts = []
        for token in tokens:
            special = token >= self.special.end
            name = self.special.names()[token - self.special.end] if special else ""
            parts.append(name.encode() if special else self._bytes_of(token))
        return b"".join(parts).decode("utf-8", "replace")
