"""Sort texts into classes: the class whose name the model finds likeliest behind the text.

    python examples/classify_texts.py --model smollm2-135m --classes positive,negative reviews.txt

Every line of the file is a text. Nothing is generated, so that the answer is always a class.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import satchel


def classify(llm: satchel.LLM, text: str, classes: list[str]) -> dict[str, float]:
    """The share of each class: how likely its name is, against those of the others."""
    prompt = f"Review: {text}\nSentiment:"
    scores = {name: sum(p for _, p in llm.logprobs(prompt, f" {name}")) for name in classes}
    largest = max(scores.values())
    weights = {name: math.exp(score - largest) for name, score in scores.items()}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("texts", type=Path, help="a file with one text in every line")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--classes", default="positive,negative")
    arguments = parser.parse_args()
    llm = satchel.LLM(arguments.model)
    for line in arguments.texts.read_text(encoding="utf-8").splitlines():
        if line.strip():
            shares = classify(llm, line.strip(), arguments.classes.split(","))
            best = max(shares, key=lambda name: shares[name])
            print(f"{best}\t{shares[best]:.2f}\t{line.strip()}")


if __name__ == "__main__":
    main()
