"""What shows whether two runs of the same weights agree: perplexity, logits and a greedy answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ANSWER = 32  # tokens of the greedy answer
QUESTION = "What is the capital of France?"

Step = Callable[[list[int], int], Any]  # tokens and the first one's position: the last one's logits


def perplexity(logits: Any, tokens: Sequence[int]) -> float:
    """Of tokens, each by the row of logits that stands for it."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    surprise = np.log(np.exp(wide).sum(axis=-1)) - wide[np.arange(len(tokens)), tokens]
    return float(np.exp(surprise.mean()))


def greedy(step: Step, prompt: list[int]) -> list[int]:
    text = list(prompt)
    logits = step(text, 0)
    for _ in range(ANSWER):
        text.append(int(logits.argmax()))
        logits = step(text[-1:], len(text) - 1)
    return text[len(prompt) :]


def tell(name: str, theirs: Any, ours: Any, tokens: Sequence[int]) -> None:
    """Perplexity of both on the tokens, and how far their logits are apart."""
    print(
        f"perplexity: {name} {perplexity(theirs, tokens):.3f}, "
        f"satchel {perplexity(ours, tokens):.3f}"
    )
    apart, largest = np.abs(theirs - ours).max(), np.abs(ours).max()
    print(f"logits differ by at most {apart:.6f}, and are up to {largest:.1f}")


def tell_answers(theirs: Step, ours: Step, prompt: list[int]) -> None:
    answers = [greedy(step, prompt) for step in (theirs, ours)]
    same = next((i for i in range(ANSWER) if answers[0][i] != answers[1][i]), ANSWER)
    print(f"greedy: the first {same} of {ANSWER} tokens are the same")
