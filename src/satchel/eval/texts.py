"""Texts, and their tokens as an evaluation sees them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from satchel.errors import EvaluationError
from satchel.llm.tokenizer import Tokenizer

BYTE_ORDER_MARK = "\ufeff"  # that some editors write before a text


def read_text(path: Path) -> str:
    """A file's text, or a reason why there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise EvaluationError(
            f"{path} is not UTF-8 text: byte {error.start} cannot be read", "Convert it first."
        ) from None
    except OSError as error:
        raise EvaluationError(
            f"the text {path} cannot be read: {error.strerror}", "Check the path."
        ) from None


def text_tokens(tokenizer: Tokenizer, text: str, limit: int | None, where: str) -> list[int]:
    """The text's tokens, the first ``limit`` of them; nothing in it is a special token."""
    tokens = tokenizer.encode(text, add_bos=False, parse_special=False)[:limit]
    if len(tokens) < 2:
        raise EvaluationError(
            f"{where} has {len(tokens)} tokens, and a perplexity needs two",
            "Use a longer text." if limit is None or limit > 1 else "Use a larger --limit.",
        )
    return tokens


def leading_tokens(tokenizer: Tokenizer) -> list[int]:
    """What the tokenizer puts before every text."""
    spec = tokenizer.spec
    lead = [spec.bos_id] if spec.add_bos and spec.bos_id is not None else []
    prefix = list(spec.prefix_ids)
    return lead if lead[: len(prefix)] == prefix else prefix + lead


def encode_pair(
    tokenizer: Tokenizer, context: str, continuation: str
) -> tuple[list[int], list[int]]:
    """A text's tokens, cut where the continuation begins.

    Both are encoded together, since a word and the space before it may be one token.
    """
    known, whole = (
        tokenizer.encode(text, add_bos=False, parse_special=False)
        for text in (context, context + continuation)
    )
    return leading_tokens(tokenizer) + known, whole[len(known) :]


def digest_of(tokens: Sequence[int], lead: Sequence[int]) -> str:
    """Stands for a text as a model sees it."""
    parts = (np.asarray(part, np.int64).tobytes() for part in (lead, tokens))
    return hashlib.sha256(b"/".join(parts)).hexdigest()
