"""Small pieces from which a `tokenizers` JSON is put together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from satchel.errors import TokenizerError


class AddedToken(NamedTuple):
    """A token that is found in text as a whole, before anything else looks at the text."""

    id: int
    content: str
    special: bool = True
    normalized: bool = False  # look for it after normalisation, not before
    rstrip: bool = False  # swallow the white space after it


def tokenizer_json(
    model: dict[str, Any],
    added: Iterable[AddedToken],
    normalizer: dict[str, Any] | None = None,
    pre_tokenizer: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None,
) -> str:
    """The text of a tokenizer.json, without BOS and EOS: these are in ``TokenizerSpec``."""
    added_tokens = [
        {
            "id": token.id,
            "content": token.content,
            "single_word": False,
            "lstrip": False,
            "rstrip": token.rstrip,
            "normalized": token.normalized,
            "special": token.special,
        }
        for token in added
    ]
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def bpe_model(
    vocab: dict[str, int],
    merges: list[tuple[str, str]],
    *,
    unk_token: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """A BPE model; earlier merges win. Neighbouring unknown characters become one token."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unk_token,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unk_token is not None,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": vocab,
        "merges": merges,
    }


def sequence(steps: Sequence[dict[str, Any]], key: str) -> dict[str, Any] | None:
    """Several steps as one; ``key`` is "normalizers", "pretokenizers" or "decoders"."""
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else {"type": "Sequence", key: list(steps)}


def replace_text(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def replace_regex(pattern: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": new}


def index_tokens(tokens: Iterable[str], where: str) -> dict[str, int]:
    """Token to id; two tokens of the same text cannot be told apart and are an error."""
    vocab: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if vocab.setdefault(token, index) != index:
            raise TokenizerError(
                f"{where}: tokens {vocab[token]} and {index} are both {token!r}",
                "The vocabulary is damaged; get the file again or give a tokenizer.json",
            )
    return vocab
