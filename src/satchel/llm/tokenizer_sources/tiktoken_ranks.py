"""Llama 3's ``tokenizer.model``: a text file with a token in base64 and its rank on each line."""

from __future__ import annotations

import base64
import binascii

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources import byte_level
from satchel.llm.tokenizer_sources.files import read_bytes
from satchel.llm.tokenizer_sources.merges import check_merges
from satchel.llm.tokenizer_sources.pre_tokenizers import LLAMA3
from satchel.llm.tokenizer_sources.spec import TokenizerSpec
from satchel.llm.tokenizer_sources.tokenizers_json import AddedToken, bpe_model, tokenizer_json

_NAMED = {
    0: "<|begin_of_text|>",
    1: "<|end_of_text|>",
    4: "<|finetune_right_pad_id|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
    8: "<|eom_id|>",
    9: "<|eot_id|>",
    10: "<|python_tag|>",
}
_SPECIAL_COUNT = 256

# Meta's folders have no template; this is the form of a prompt that Llama 3's model card gives.
LLAMA3_CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)


def special_tokens() -> list[str]:
    """Llama 3's 256 special tokens; they follow the ranked ones.

    >>> special_tokens()[9]
    '<|eot_id|>'
    """
    tokens: list[str] = []
    reserved = 0
    for position in range(_SPECIAL_COUNT):
        if position in _NAMED:
            tokens.append(_NAMED[position])
        else:
            tokens.append(f"<|reserved_special_token_{reserved}|>")
            reserved += 1
    return tokens


def read_tiktoken(source: TokenizerSource) -> TokenizerSpec:
    """Read a file of ranks and add what belongs to Llama 3."""
    ranks = read_ranks(read_bytes(source.path), source.path.name)
    vocab = {byte_level.write_bytes(token): rank for token, rank in ranks.items()}
    base = len(vocab)
    specials = special_tokens()
    merges = find_merges(vocab)
    added = [AddedToken(base + at, content) for at, content in enumerate(specials)]
    vocab.update((token.content, token.id) for token in added)
    text = tokenizer_json(
        bpe_model(vocab, merges, ignore_merges=True),
        added,
        pre_tokenizer=byte_level.pre_tokenizer((LLAMA3,)),
        decoder=byte_level.DECODER,
    )
    return TokenizerSpec(
        json=text,
        bos_token=specials[0],
        bos_id=base,
        eos_ids=(base + 9, base + 8, base + 1),
        pad_id=base + 4,
        add_bos=True,
        chat_template=LLAMA3_CHAT_TEMPLATE,
        special_tokens={
            "bos_token": specials[0],
            "eos_token": specials[9],
            "pad_token": specials[4],
        },
    )


def read_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """The tokens of such a file with their ranks, checked."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        try:
            token, rank = line.split()
            # Whisper's file writes a token without any bytes as its padding alone.
            ranks[b"" if token == b"=" else base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise TokenizerError(
                f"{where}: line {number} is not a token in base64 and its rank",
                "Get the file again, or use it as sentencepiece's if the model is not Llama 3",
            ) from None
    if sorted(ranks.values()) != list(range(len(ranks))) or len(ranks) < 256:
        raise TokenizerError(
            f"{where}: the ranks of its {len(ranks)} tokens are not 0, 1, 2, …",
            "Get the file again, it is damaged",
        )
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(
            f"{where}: byte {missing[0]} is not among the tokens",
            "Get the file again, it is damaged",
        )
    return ranks


def find_merges(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs that byte-level BPE joins, in the order of what they make."""
    # Any two tokens may join when what they make is a token; the lowest rank joins first.
    ranked: list[tuple[int, int, int, str, str]] = []
    for token, rank in vocab.items():
        check_merges(len(ranked), token, len(vocab))
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                ranked.append((rank, vocab[left], vocab[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]
