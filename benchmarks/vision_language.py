"""Vision-language models with random weights of real shapes: time to first token, and memory.

    python benchmarks/vision_language.py --recipe 8da4w

The shapes are SmolVLM-256M's: SigLIP of 12 layers over tiles of 512 x 512, a Llama of 30 layers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.machine import peak_rss
from satchel.sources.random_weights import write_tokenizer

MARKS = ["<image>", "<fake_token_around_image>", "<global-img>"]
PLACES = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
TILE = 512
VOCABULARY = 49280
VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": TILE,
    "patch_size": 16,
}
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def write_checkpoint(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, SmolVLMConfig, SmolVLMForConditionalGeneration

    folder.mkdir(parents=True)
    write_tokenizer(folder)
    document = json.loads((folder / "tokenizer.json").read_text())
    first = max(
        [*document["model"]["vocab"].values(), *(t["id"] for t in document["added_tokens"])]
    )
    first += 1  # what is added follows without a gap
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for number, name in enumerate([*MARKS, *PLACES], start=first):
        document["added_tokens"].append({"id": number, "content": name, "special": True, **flags})
    torch.manual_seed(0)
    config = SmolVLMConfig(
        vision_config=VISION,
        text_config=LlamaConfig(**TEXT),
        image_token_id=first,
        scale_factor=4,
    )
    SmolVLMForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    processor = {"size": {"longest_edge": 4 * TILE}, "max_image_size": {"longest_edge": TILE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def apart(work: Callable[..., Any], *given: Any) -> None:
    """In a process of its own, so that its memory does not count here."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=given)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} failed")


def export(checkpoint: Path, path: Path, recipe: str) -> None:
    satchel.export(checkpoint, path, recipe=recipe, context=2048)


def main() -> None:
    from PIL import Image

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", default="8da4w")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, help="that is there already")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        checkpoint = arguments.checkpoint or Path(work) / "smolvlm"
        if not checkpoint.exists():
            apart(write_checkpoint, checkpoint)
        path = Path(work) / "smolvlm.satchel"
        apart(export, checkpoint, path, arguments.recipe)
        llm = satchel.LLM(path, threads=arguments.threads)
        rng = np.random.default_rng(0)
        print("| image | tiles | prompt, tokens | first token, s | one tile, s |")
        print("|---|---|---|---|---|")
        for width, height in ((512, 512), (640, 480), (480, 640)):
            first, tile = [], []
            for _ in range(arguments.rounds):
                pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
                image = Image.fromarray(pixels)
                frames = llm.pictures.frames(image)
                start = time.perf_counter()
                made = llm.generate("What is it?", raw=True, images=[image], max_new_tokens=1)
                made.finish()
                first.append(time.perf_counter() - start)
                start = time.perf_counter()
                llm.pictures._method.run(frames.pixels[0])
                tile.append(time.perf_counter() - start)
                llm.sessions.forget()
            count = len(frames.pixels)
            print(
                f"| {width} x {height} | {count} | {made.stats.prompt_tokens} | "
                f"{statistics.median(first):.2f} | {statistics.median(tile):.3f} |",
                flush=True,
            )
        print(f"\n{path.stat().st_size / 1e6:.0f} MB, at most {peak_rss() / 1e6:.0f} MB of memory")


if __name__ == "__main__":
    main()
