"""Vocabularies of scored pieces: what sentencepiece, llama2.c and GGUF's "llama" have in common."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources.merges import check_merges
from satchel.llm.tokenizer_sources.tokenizers_json import (
    AddedToken,
    bpe_model,
    index_tokens,
    replace_regex,
    replace_text,
    sequence,
    tokenizer_json,
)

SPACE = "▁"
# Pieces that text may not reach get this score. No path through them can win, and it is not so
# large that sums with it lose the other scores' digits.
_NEVER = -1e6


class PieceType(IntEnum):
    """The numbers are the same in sentencepiece's models and in GGUF."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Normalization:
    """What happens to text before it is cut in pieces."""

    charsmap: bytes = b""  # sentencepiece's compiled replacement rules
    charsmap_name: str = ""  # "nmt_nfkc", "identity", …
    dummy_prefix: bool = True
    remove_extra_whitespaces: bool = False


@dataclass(frozen=True)
class PieceVocabulary:
    """Pieces with their scores and types, by id."""

    pieces: list[str]
    scores: list[float]
    types: list[int]
    where: str  # for messages: which file

    def __post_init__(self) -> None:
        if not len(self.pieces) == len(self.scores) == len(self.types):
            raise TokenizerError(
                f"{self.where}: {len(self.pieces)} tokens have {len(self.scores)} scores and "
                f"{len(self.types)} types",
                "The vocabulary is damaged; get the file again",
            )

    def of_type(self, *types: PieceType) -> list[int]:
        return [index for index, kind in enumerate(self.types) if kind in types]

    def unknown_piece(self) -> str | None:
        unknown = self.of_type(PieceType.UNKNOWN)
        return self.pieces[unknown[0]] if unknown else None


def find_merges(vocabulary: PieceVocabulary, index: dict[str, int]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a third, best score first.

    Sentencepiece joins, again and again, the neighbours whose joint piece has the best score;
    ranked merges do the same when their order is that of the scores.
    """
    types, scores = vocabulary.types, vocabulary.scores
    normal = {piece for piece, at in index.items() if types[at] == PieceType.NORMAL}
    ranked: list[tuple[float, int, str, str]] = []
    for piece in normal:
        if len(piece) < 2:
            continue
        check_merges(len(ranked), piece, len(index))
        rank = -scores[index[piece]]
        for cut in range(1, len(piece)):
            left = piece[:cut]
            if left in normal and (right := piece[cut:]) in normal:
                ranked.append((rank, index[piece], left, right))
    ranked.sort()
    return [(left, right) for _, _, left, right in ranked]


def bpe_json(
    vocabulary: PieceVocabulary,
    normalization: Normalization,
    added: list[AddedToken] | None = None,
    unk_token: str | None = None,
) -> str:
    """Sentencepiece's BPE as a tokenizer.json."""
    index = index_tokens(vocabulary.pieces, vocabulary.where)
    byte_fallback = PieceType.BYTE in vocabulary.types
    model = bpe_model(
        index,
        find_merges(vocabulary, index),
        unk_token=unk_token or vocabulary.unknown_piece(),
        byte_fallback=byte_fallback,
    )
    return _with_surroundings(model, vocabulary, normalization, added, byte_fallback)


def unigram_json(vocabulary: PieceVocabulary, normalization: Normalization) -> str:
    """Sentencepiece's unigram model as a tokenizer.json."""
    index_tokens(vocabulary.pieces, vocabulary.where)
    unknown = vocabulary.of_type(PieceType.UNKNOWN)
    if not unknown:
        raise TokenizerError(
            f"{vocabulary.where}: a unigram model has no unknown token",
            "The file is damaged; get it again",
        )
    reachable = (PieceType.NORMAL, PieceType.USER_DEFINED)
    byte_fallback = PieceType.BYTE in vocabulary.types
    model = {
        "type": "Unigram",
        "unk_id": unknown[0],
        "byte_fallback": byte_fallback,
        "vocab": [
            (piece, score if kind in reachable else _NEVER)
            for piece, score, kind in zip(
                vocabulary.pieces, vocabulary.scores, vocabulary.types, strict=True
            )
        ],
    }
    return _with_surroundings(model, vocabulary, normalization, None, byte_fallback)


def _with_surroundings(
    model: dict[str, Any],
    vocabulary: PieceVocabulary,
    normalization: Normalization,
    added: list[AddedToken] | None,
    byte_fallback: bool,
) -> str:
    if added is None:
        added = default_added_tokens(vocabulary)
    inside_text = [token.content for token in added if token.normalized]
    return tokenizer_json(
        model,
        added,
        normalizer=_normalizer(normalization, inside_text),
        decoder=_decoder(normalization.dummy_prefix, byte_fallback),
    )


def default_added_tokens(vocabulary: PieceVocabulary) -> list[AddedToken]:
    """Control pieces cut a text in parts; user-defined ones are found inside a part."""
    cutting = vocabulary.of_type(PieceType.CONTROL, PieceType.UNKNOWN)
    inside = [
        at
        for at in vocabulary.of_type(PieceType.USER_DEFINED)
        if " " not in vocabulary.pieces[at]  # normalised text has no space: never found
    ]
    return [
        *(AddedToken(at, vocabulary.pieces[at]) for at in cutting),
        *(AddedToken(at, vocabulary.pieces[at], special=False, normalized=True) for at in inside),
    ]


def _normalizer(how: Normalization, inside_text: list[str]) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = []
    if how.charsmap_name.startswith("nmt"):
        # Both characters become spaces, but `tokenizers` takes the pair for one of them.
        steps.append(replace_text("\r\n", "\n\n"))
    if how.charsmap:
        # `tokenizers` replaces whole graphemes: unlike sentencepiece, it loses a combining mark
        # whose base is replaced. Language models' tokenizers have no such rules, T5's has.
        charsmap = base64.b64encode(how.charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if how.remove_extra_whitespaces:
        # The mark at the end goes too, even if the text itself has it there.
        steps += [replace_regex(rf"\A +|[ {SPACE}]+\z", ""), replace_regex(" {2,}", " ")]
    if how.dummy_prefix and inside_text:
        # Tokens that are found after normalisation are themselves normalised before they are
        # looked for: the prefix must spare a text that is just such a token.
        alone = "|".join(re.escape(token) for token in inside_text)
        steps.append(replace_regex(rf"\A(?!(?:{alone})?\z)", SPACE))
    elif how.dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE})
    steps.append(replace_text(" ", SPACE))
    return sequence(steps, "normalizers")


def _decoder(dummy_prefix: bool, byte_fallback: bool) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = [replace_text(SPACE, " ")]
    if byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return sequence(steps, "decoders")
