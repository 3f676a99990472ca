"""What compiling a model for an NPU takes: the plan for all of it, and one shard really compiled.

    python benchmarks/npu_compile.py qwen3-4b
    python benchmarks/npu_compile.py qwen3-4b --layers 2 --target qnn:SM8650
    python benchmarks/npu_compile.py qwen3-4b --all

The plan reads headers only, so it is made from a checkpoint without data. The shard has random
weights and as many of the model's layers as the plan gives to its first shard, or --layers;
--all compiles every shard of the whole model instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from satchel.sources.random_weights import tensor_shapes, write_checkpoint, write_tokenizer
from satchel.sources.shapes import SHAPES

SMALL_VOCABULARY = 512  # of a shard without the head


def satchel(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "satchel", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def write_empty(name: str, folder: Path) -> Path:
    """A checkpoint whose tensors have places but no data: a file with a hole."""
    folder.mkdir()
    header: dict[str, Any] = {}
    at = 0
    for tensor, shape in tensor_shapes(SHAPES[name]).items():
        size = 2
        for dim in shape:
            size *= dim
        header[tensor] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    document = json.dumps(header).encode()
    document += b" " * (-len(document) % 8)
    file = folder / "model.safetensors"
    file.write_bytes(len(document).to_bytes(8, "little") + document)
    os.truncate(file, 8 + len(document) + at)
    (folder / "config.json").write_text(json.dumps(SHAPES[name]))
    write_tokenizer(folder)
    return folder


def compile_shard(
    name: str, folder: Path, layers: int | None, target: str, extra: list[str]
) -> dict[str, Any]:
    """Export so many of a model's layers without its head, or all of it with it."""
    if layers:
        SHAPES[name] = {**SHAPES[name], "vocab_size": SMALL_VOCABULARY}
    write_checkpoint(name, folder, layers)
    output = folder / "npu.satchel"
    shards = ["--num-sharding", "1"] if layers else []
    started = time.perf_counter()
    satchel("export", str(folder), "-o", str(output), "--target", target, *shards, *extra)
    seconds = time.perf_counter() - started
    npu = satchel("inspect", str(output))["metadata"]["payloads"][target]
    return {"seconds": seconds, "shards": npu["shards"], "bytes": output.stat().st_size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("--target", default="qnn:SM8750")
    parser.add_argument("--layers", type=int, help="of the compiled shard")
    parser.add_argument("--all", action="store_true", help="compile the whole model")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    arguments, extra = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        folder = Path(made)
        empty = write_empty(arguments.name, folder / "empty")
        document = satchel("export", str(empty), "--target", arguments.target, "--plan", *extra)
        plan = document["plan"]["payloads"][arguments.target]
        print(f"{arguments.name} for {arguments.target}: {len(plan['shards'])} shards planned")
        for number, shard in enumerate(plan["shards"]):
            print(
                f"  shard {number}: {shard['weight_bytes'] / 1e6:.0f} MB of weights, "
                f"{shard['context_bytes'] / 1e6:.0f} MB on the chip; compiling "
                f"{shard['compile_seconds']:.0f} s, {shard['compile_memory_bytes'] / 1e6:.0f} MB"
            )
        every = SHAPES[arguments.name]["num_hidden_layers"]
        layers = arguments.layers or -(-every // len(plan["shards"]))
        whole = None if arguments.all else layers
        result = compile_shard(arguments.name, folder / "random", whole, arguments.target, extra)
        said = "all layers" if arguments.all else f"{layers} layers"
        print(f"{said} compiled: {result['seconds']:.0f} s for the whole export")
        for number, shard in enumerate(result["shards"]):
            print(
                f"  shard {number}: binary {shard['binary_bytes'] / 1e6:.0f} MB, "
                f"{shard['seconds']:.0f} s ({shard['processor_seconds']:.0f} s of the compiler's "
                f"processor time), peak memory {shard['peak_memory_bytes'] / 1e6:.0f} MB, "
                f"agreement with the reference {shard['agreement']:.4f}"
            )


if __name__ == "__main__":
    main()
