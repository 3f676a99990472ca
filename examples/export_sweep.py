"""Export one model with several recipes, and compare what each costs and gives.

python examples/export_sweep.py ./Llama-3.2-1B-Instruct --text wiki.test.raw --limit 4096
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import satchel

RECIPES = {
    "fp16": {"recipe": "fp16"},
    "8a8w": {"recipe": "8a8w"},
    "8da4w": {"recipe": "8da4w"},
    "8da4w, 8-bit embedding": {"recipe": "8da4w", "embedding": (8, 0), "head_bits": 8},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", help="a checkpoint or a name")
    parser.add_argument("--text", type=Path, required=True, help="what the perplexity is of")
    parser.add_argument("--limit", type=int, help="only its first tokens")
    parser.add_argument("--context", type=int)
    arguments = parser.parse_args()
    print(f"{'recipe':<24} {'file':>9} {'decode':>12} {'perplexity':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, options) in enumerate(RECIPES.items()):
            output = Path(folder) / f"{number}.satchel"
            satchel.export(arguments.model, output, context=arguments.context, **options)  # type: ignore[call-overload]
            speed = satchel.bench(output, runs=1)["decode_tok_s"]
            result = satchel.evaluate(output, text=arguments.text, limit=arguments.limit)
            perplexity = result["phases"]["device"]["ppl"]
            size = output.stat().st_size / 1e6
            print(f"{name:<24} {size:6.1f} MB {speed:6.1f} tok/s {perplexity:11.3f}", flush=True)


if __name__ == "__main__":
    main()
