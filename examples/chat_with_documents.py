"""Answer a question from files: the passages that share most rare words with it are the context.

    python examples/chat_with_documents.py --model smollm2-135m docs/*.md -q "What is a recipe?"

The search is plain counting of words, with no index and no second model: enough for some files.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from pathlib import Path

import satchel


def passages_of(paths: list[Path]) -> list[str]:
    """Paragraphs with the name of their file."""
    found = []
    for path in paths:
        for part in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            if part.strip():
                found.append(f"[{path.name}] {' '.join(part.split())}")
    return found


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def best_passages(question: str, passages: list[str], count: int) -> list[str]:
    """Those with most of the question's words; a word counts the more, the fewer have it."""
    seen = [words(passage) for passage in passages]
    holders = Counter(word for one in seen for word in one)
    asked = words(question)

    def score(one: Counter[str]) -> float:
        rare = (math.log(1 + len(seen) / holders[word]) for word in asked if word in one)
        return sum(rare) / math.sqrt(1 + one.total() / 50)

    ranked = sorted(range(len(seen)), key=lambda at: -score(seen[at]))
    return [passages[at] for at in ranked[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-q", "--question", required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--passages", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=200)
    arguments = parser.parse_args()
    found = best_passages(arguments.question, passages_of(arguments.files), arguments.passages)
    prompt = "\n".join(["Answer from these passages only.", *found, "", arguments.question])
    llm = satchel.LLM(arguments.model)
    for piece in llm.generate(prompt, max_new_tokens=arguments.max_new_tokens):
        print(piece, end="", flush=True)
    print("\n\nfrom:", *(passage.split("]")[0] + "]" for passage in found))


if __name__ == "__main__":
    main()
