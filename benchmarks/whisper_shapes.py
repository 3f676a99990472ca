"""Whisper's larger sizes with random weights: from export to text, time and memory.

    python benchmarks/whisper_shapes.py base small medium large-v3-turbo

A window of 30 seconds is heard, and 32 tokens are written of it: with random weights they mean
nothing, and their number and cost are what they would be. Memory is that of the process that does
it, which maps the file; making and exporting the checkpoint are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.checkpoints.base import TokenizerSource
from satchel.graph.ir import DType
from satchel.llm.tokenizer_sources.whisper_ranks import read_whisper
from satchel.machine import peak_rss
from satchel.runtime.program import Program
from satchel.sources.random_weights import random_pool, write_shard
from satchel.speech.model import SpeechModel
from satchel.speech.whisper import CONVOLUTIONS, KERNEL, Whisper
from vision_language import apart

# Layers of encoder and decoder, heads, width, mel bins, vocabulary.
SIZES = {
    "tiny": (4, 4, 6, 384, 80, 51865),
    "base": (6, 6, 8, 512, 80, 51865),
    "small": (12, 12, 12, 768, 80, 51865),
    "medium": (24, 24, 16, 1024, 80, 51865),
    "large-v3-turbo": (32, 4, 20, 1280, 128, 51866),
    "large-v3": (32, 32, 20, 1280, 128, 51866),
}
TOKENS = 32


def config(size: str) -> dict[str, Any]:
    encoder, decoder, heads, width, mels, vocabulary = SIZES[size]
    return {
        "model_type": "whisper",
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "d_model": width,
        "num_mel_bins": mels,
        "vocab_size": vocabulary,
    }


def write_checkpoint(size: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    shape = config(size)
    model = Whisper(shape)
    graphs = (model.encode(DType.f16), model.decode(DType.f16))
    tensors = {w.source.tensor: w.shape for graph in graphs for w in graph.weights()}
    for name in CONVOLUTIONS:
        rows, columns = tensors[f"{name}.weight"]
        tensors[f"{name}.weight"] = (rows, columns // KERNEL, KERNEL)
    write_shard(folder / "model.safetensors", tensors, random_pool(0), 0)
    (folder / "config.json").write_text(json.dumps(shape))
    pairs = (bytes([a, b]) for a in range(32, 256) for b in range(256))
    words = [*(bytes([n]) for n in range(256)), *(next(pairs) for _ in range(50257 - 256))]
    known = {"vocab_size": shape["vocab_size"], "tokens": words}
    made = read_whisper(TokenizerSource("whisper", Path("words"), known))
    (folder / "tokenizer.json").write_text(made.json)


def export(checkpoint: Path, path: Path, recipe: str) -> None:
    satchel.export(checkpoint, path, recipe=recipe)


def measure(size: str, path: Path, threads: int, rounds: int) -> None:
    model = SpeechModel(Program(path), threads)
    mel = np.random.default_rng(0).normal(0, 0.7, (model.frames, SIZES[size][4]))
    heard, written = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        model.listen(mel.astype(np.float32))
        heard.append(time.perf_counter() - start)
        sequence, token = model.open(), model.vocabulary.special.start
        start = time.perf_counter()
        for position in range(TOKENS):
            token = int(model.step([sequence], [token], position)[0].argmax())
        written.append(time.perf_counter() - start)
        model.close([sequence])
    each = statistics.median(written) / TOKENS
    print(
        f"| {size} | {path.stat().st_size / 1e6:.0f} MB | {statistics.median(heard):.2f} | "
        f"{each * 1e3:.1f} | {peak_rss() / 1e6:.0f} MB |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sizes", nargs="+", choices=SIZES)
    parser.add_argument("--recipe", default="8a8w")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print("| size | file | encoder, s | a token, ms | memory |\n|---|---|---|---|---|", flush=True)
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as work:
            checkpoint, path = Path(work) / size, Path(work) / f"{size}.satchel"
            apart(write_checkpoint, size, checkpoint)
            apart(export, checkpoint, path, given.recipe)
            apart(measure, size, path, given.threads, given.rounds)


if __name__ == "__main__":
    main()
