"""Writes a checkpoint of random weights with a real model's shapes, as sharded bf16 safetensors.

python benchmarks/random_checkpoint.py llama3_2-1b /tmp/llama-1b
python benchmarks/random_checkpoint.py llama3_2-1b /tmp/llama-1b-double --layers 32
"""

from __future__ import annotations

import argparse
from pathlib import Path

from satchel.sources.random_weights import write_checkpoint
from satchel.sources.shapes import SHAPES


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, help="other than the model's own number")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    total = write_checkpoint(arguments.name, arguments.folder, arguments.layers, arguments.seed)
    print(f"{arguments.folder}: {total / 1e9:.2f} GB of random weights")


if __name__ == "__main__":
    main()
