"""Finding the tokenizer that lies beside weights."""

from __future__ import annotations

import re
from pathlib import Path

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import CheckpointError

# Of llama2.c's models: stories follow each other in its training, each begun by token 1, so that
# this ends one, too.
STORY_ENDS = [1, 2]
STORY_TOKENS = 32000  # the most that its tokenizers have

# Llama 3's tokenizer.model is text: a base64 token and its rank on every line.
_RANKED_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")


def tokenizer_in_folder(folder: Path) -> TokenizerSource | None:
    """tokenizer.json if there is one, else tokenizer.model in either of its forms."""
    if (folder / "tokenizer.json").is_file():
        return TokenizerSource("huggingface", folder)
    return tokenizer_model(folder / "tokenizer.model")


def advice_without_tokenizer(path: Path) -> str:
    """What to do about a checkpoint without a tokenizer that we read, by what lies there."""
    folder = path if path.is_dir() else path.parent
    other = [name for name in ("vocab.json", "tekken.json") if (folder / name).is_file()]
    if other:
        return (
            f"{other[0]} is not read; transformers makes a tokenizer.json of it: "
            f'AutoTokenizer.from_pretrained("{folder}").save_pretrained("{folder}").'
        )
    return "Put its tokenizer.json or tokenizer.model there, or give it with --tokenizer."


def tokenizer_model(path: Path) -> TokenizerSource | None:
    """A tokenizer.model by its content: sentencepiece (binary) or ranked BPE (text)."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(4096)
    return TokenizerSource("tiktoken" if _RANKED_LINE.match(start) else "sentencepiece", path)


def tokenizer_at(path: Path) -> TokenizerSource:
    """The tokenizer in a file or a folder that was named: by its content where that tells it."""
    found: TokenizerSource | None
    if path.suffix == ".json" and path.is_file():
        found = TokenizerSource("huggingface", path)
    elif path.suffix == ".bin" and path.is_file():
        found = TokenizerSource("llama2c", path)
    else:
        found = tokenizer_in_folder(path) if path.is_dir() else tokenizer_model(path)
    if found is None:
        raise CheckpointError(
            f"there is no tokenizer at {path}",
            "Give a tokenizer.json, a tokenizer.model, llama2.c's tokenizer.bin, or their folder",
        )
    return found


def llama2c_tokenizer(folder: Path, vocab_size: int) -> TokenizerSource | None:
    """llama2.c's own tokenizer beside the weights, the one of this vocabulary first."""
    for name in (f"tok{vocab_size}.bin", "tokenizer.bin"):
        if (folder / name).is_file():
            return TokenizerSource("llama2c", folder / name)
    for name in (f"tok{vocab_size}.model", "tokenizer.model"):
        if found := tokenizer_model(folder / name):
            return found
    return None
