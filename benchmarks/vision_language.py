"""Vision-language models with random weights of real shapes: time to first token by image, memory.

    python benchmarks/vision_language.py smolvlm-256m
    python benchmarks/vision_language.py llava-1.5-7b --work FOLDER

The shapes are SmolVLM-256M's and SmolVLM-500M's (SigLIP of 12 layers over tiles of 512 x 512, a
Llama of 30 or 32 layers) and LLaVA-1.5-7B's (CLIP of 24 layers over 336 x 336, a Llama of 32
layers; its checkpoint takes 14 GB of disk while it is exported). What is measured is a process of
its own for each image: the first token of a prompt with an image never seen, from the picture to
the token, and the most memory that it had. With --work the program is kept there, and measured
again (--rounds 0: only made).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.machine import peak_rss
from satchel.sources.random_weights import random_pool, write_tensors, write_tokenizer

IMAGE = "<image>"
PLACES = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
TILE = 512


def smolvlm_256m(image: int) -> tuple[Any, dict[str, Any]]:
    return _smolvlm(image, hidden=576, mlp=1536, layers=30, heads=9, kv_heads=3)


def smolvlm_500m(image: int) -> tuple[Any, dict[str, Any]]:
    return _smolvlm(image, hidden=960, mlp=2560, layers=32, heads=15, kv_heads=5)


def _smolvlm(
    image: int, hidden: int, mlp: int, layers: int, heads: int, kv_heads: int
) -> tuple[Any, dict[str, Any]]:
    import transformers as t

    vision = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": TILE,
        "patch_size": 16,
    }
    text = t.LlamaConfig(
        vocab_size=49280,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        rope_theta=100000.0,
        pad_token_id=0,
    )
    config = t.SmolVLMConfig(
        vision_config=vision, text_config=text, image_token_id=image, scale_factor=4
    )
    processor = {"size": {"longest_edge": 4 * TILE}, "max_image_size": {"longest_edge": TILE}}
    return t.SmolVLMForConditionalGeneration(config), processor


def llava(image: int) -> tuple[Any, dict[str, Any]]:
    import transformers as t

    vision = t.CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
        projection_dim=768,
    )
    text = t.LlamaConfig(vocab_size=32064, max_position_embeddings=4096)  # Llama-2-7B's
    config = t.LlavaConfig(vision_config=vision, text_config=text, image_token_index=image)
    processor = {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 336},
        "crop_size": {"height": 336, "width": 336},
    }
    return t.LlavaForConditionalGeneration(config), processor


# The model, the marks that its tokenizer knows, and images to show it.
SMOLVLM_MARKS = [IMAGE, "<fake_token_around_image>", "<global-img>", *PLACES]
SMOLVLM_IMAGES = [(512, 512), (640, 480)]
MODELS: dict[str, tuple[Callable[[int], Any], list[str], list[tuple[int, int]]]] = {
    "smolvlm-256m": (smolvlm_256m, SMOLVLM_MARKS, SMOLVLM_IMAGES),
    "smolvlm-500m": (smolvlm_500m, SMOLVLM_MARKS, SMOLVLM_IMAGES),
    "llava-1.5-7b": (llava, [IMAGE], [(336, 336), (1600, 1200)]),
}


def write_checkpoint(name: str, folder: Path) -> None:
    """Only shapes are transformers': a model of 7 billion weights is never in memory."""
    import torch

    build, marks, _ = MODELS[name]
    folder.mkdir(parents=True)
    write_tokenizer(folder)
    document = json.loads((folder / "tokenizer.json").read_text())
    known = [*document["model"]["vocab"].values(), *(t["id"] for t in document["added_tokens"])]
    first = max(known) + 1  # what is added follows without a gap
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for number, mark in enumerate(marks, start=first):
        document["added_tokens"].append({"id": number, "content": mark, "special": True, **flags})
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with torch.device("meta"):
        model, processor = build(first)
    shapes = {
        tensor: tuple(value.shape)
        for tensor, value in model.state_dict().items()
        if not tensor.endswith("position_ids")
    }
    write_tensors(folder, shapes, random_pool(0))
    model.config.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def export(checkpoint: Path, path: Path, recipe: str) -> None:
    start = time.perf_counter()
    satchel.export(checkpoint, path, recipe=recipe, context=2048)
    took = time.perf_counter() - start
    print(f"exported in {took:.0f} s, at most {peak_rss() / 1e6:.0f} MB of memory", flush=True)


def apart(work: Callable[..., Any], *given: Any) -> None:
    """In a process of its own, so that its memory does not count here."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=given)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} failed")


def measure(path: Path, width: int, height: int, threads: int, rounds: int) -> None:
    """One line of the table."""
    from PIL import Image

    llm = satchel.LLM(path, threads=threads)
    rng = np.random.default_rng(0)
    first, tile = [], []
    for number in range(rounds + 1):  # the first warms up
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        start = time.perf_counter()
        made = llm.generate("What is it?", raw=True, images=[image], max_new_tokens=1)
        made.finish()
        first += [time.perf_counter() - start] if number else []
        frames = llm.pictures.frames(image)
        start = time.perf_counter()
        llm.pictures._method.run(frames.pixels[0])
        tile += [time.perf_counter() - start] if number else []
        llm.sessions.forget()
    print(
        f"| {width} x {height} | {len(frames.pixels)} | {made.stats.prompt_tokens} | "
        f"{statistics.median(first):.2f} | {statistics.median(tile):.3f} | "
        f"{peak_rss() / 1e6:.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--recipe", default="8da4w")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="a folder that keeps the program")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        path = work / f"{given.model}-{given.recipe}.satchel"
        if not path.exists():
            checkpoint = work / given.model
            apart(write_checkpoint, given.model, checkpoint)
            apart(export, checkpoint, path, given.recipe)
            shutil.rmtree(checkpoint)
        if not given.rounds:
            return
        print(f"{given.model} {given.recipe}: {path.stat().st_size / 1e6:.0f} MB\n")
        print("| image | tiles | prompt, tokens | first token, s | one tile, s | memory, MB |")
        print("|---|---|---|---|---|---|", flush=True)
        for width, height in MODELS[given.model][2]:
            apart(measure, path, width, height, given.threads, given.rounds)


if __name__ == "__main__":
    main()
