"""A checkpoint as vLLM takes it: random weights of a shape, and a tokenizer for all their tokens.

    python benchmarks/peers/vllm_folder.py llama3_2-1b TOKENIZER_FOLDER OUT

vLLM's build for processors has no kernels for GGUF files, so it computes in bf16: its speed is that
of other weights than the ones that the file has. Tokens beyond the tokenizer's own have texts too,
as in the GGUF file, so that clients see each of them.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from satchel.sources.random_weights import write_checkpoint
from satchel.sources.shapes import SHAPES


def write_folder(shape: str, tokenizer: Path, folder: Path) -> None:
    write_checkpoint(shape, folder)
    document = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    texts = document["model"]["vocab"]
    known = max([*texts.values(), *(token["id"] for token in document["added_tokens"])]) + 1
    for number in range(known, SHAPES[shape]["vocab_size"]):
        texts[f"\u0120unused{number}"] = number
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    shutil.copy(tokenizer / "tokenizer_config.json", folder)


if __name__ == "__main__":
    write_folder(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
