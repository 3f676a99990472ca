"""Whisper's vocabulary, as a file of ranks (openai-whisper) or as a list of tokens (ggml)."""

from __future__ import annotations

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources import byte_level
from satchel.llm.tokenizer_sources.files import read_bytes
from satchel.llm.tokenizer_sources.pre_tokenizers import GPT2
from satchel.llm.tokenizer_sources.spec import TokenizerSpec
from satchel.llm.tokenizer_sources.tiktoken_ranks import find_merges, read_ranks
from satchel.llm.tokenizer_sources.tokenizers_json import AddedToken, bpe_model, tokenizer_json
from satchel.speech.tokens import Tokens


def read_whisper(source: TokenizerSource) -> TokenizerSpec:
    """The tokenizer of a vocabulary of ``metadata["vocab_size"]`` tokens.

    The words' order is the order in which byte-level BPE joins them, in both forms.
    """
    special = Tokens.of_vocabulary(source.metadata["vocab_size"])
    listed = source.metadata.get("tokens")
    if listed is None:
        ranks = read_ranks(read_bytes(source.path), source.path.name)
    else:
        ranks = {token: rank for rank, token in enumerate(listed[: special.end])}
    nothing = ranks.pop(b"", None)  # a place in the vocabulary that no text has
    if not ranks or max(ranks.values()) >= special.end or len(ranks) < special.end - 1:
        raise TokenizerError(
            f"{source.path.name} has {len(ranks)} words, and this model has {special.end}",
            "Models for English use gpt2.tiktoken, all others multilingual.tiktoken.",
        )
    vocab = {byte_level.write_bytes(token): rank for token, rank in ranks.items()}
    merges = find_merges(vocab)
    added = [AddedToken(special.end + at, name) for at, name in enumerate(special.names())]
    if nothing is not None:
        vocab[""] = nothing
    vocab.update((token.content, token.id) for token in added)
    text = tokenizer_json(
        bpe_model(vocab, merges),
        added,
        pre_tokenizer=byte_level.pre_tokenizer((GPT2,)),
        decoder=byte_level.DECODER,
    )
    return TokenizerSpec(json=text, eos_ids=(special.end,))
