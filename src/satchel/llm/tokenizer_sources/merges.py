"""Bounds for finding out which tokens make which others."""

from __future__ import annotations

from satchel.errors import TokenizerError

# Real vocabularies have two or three merges for a token, and tokens of up to 256 bytes.
_FEW, _FOR_EACH, _LONGEST = 100_000, 16, 1024


def check_merges(merges: int, token: str, tokens: int) -> None:
    """Tokens that are all beginnings of each other would have merges, and memory, without end."""
    if merges > _FEW + _FOR_EACH * tokens or len(token) > _LONGEST:
        raise TokenizerError(
            f"the tokenizer's {tokens} tokens are too long, or too many ways lead to them",
            "The vocabulary is damaged or hostile: get the file again, from a source you trust",
        )
