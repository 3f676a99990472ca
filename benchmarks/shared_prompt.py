"""Many conversations with one system prompt: computed once, in the cache once, same answers.

    python benchmarks/shared_prompt.py smollm2-135m --conversations 16 --prompt-tokens 1000

Answers are those that each conversation gives alone, which is checked.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from satchel import LLM

SYSTEM = (
    "You are the assistant of a small museum of clocks. Answer visitors briefly and kindly. The "
    "museum opens at ten and closes at six, and on Mondays it is closed. "
)
QUESTIONS = ("opening hours", "tickets", "the oldest clock", "the cafe", "photographs", "parking")


def system_prompt(llm: LLM, tokens: int) -> str:
    text = ""
    while len(llm.tokenizer.encode(text + SYSTEM)) < tokens:
        text += SYSTEM
    return text


def measure(llm: LLM, conversations: int, tokens: int, new_tokens: int) -> dict[str, Any]:
    system = system_prompt(llm, tokens)
    prompts = [
        f"{system}\nVisitor {i}: what about {QUESTIONS[i % len(QUESTIONS)]}?\nAnswer:"
        for i in range(conversations)
    ]
    options: dict[str, Any] = {"raw": True, "max_new_tokens": new_tokens, "temperature": 0.0}
    started = time.perf_counter()
    together = llm.generate_many(prompts, **options)
    seconds = time.perf_counter() - started
    usage = llm.session.instance.cache_usage
    read = sum(one.stats.prompt_tokens for one in together)
    computed = sum(one.stats.prompt_tokens - one.stats.reused_tokens for one in together)
    alone = [LLM(llm.program).generate(prompt, **options).finish().tokens for prompt in prompts]
    return {
        "conversations": conversations,
        "prompt_tokens_of_all": read,
        "prompt_tokens_computed": computed,
        "cache_bytes": usage.pages * usage.page_bytes,
        "cache_bytes_if_each_had_its_own": -(-read // 64) * usage.page_bytes,
        "seconds": seconds,
        "same_as_alone": [one.tokens for one in together] == alone,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=1000)
    parser.add_argument("--new-tokens", type=int, default=32)
    given = parser.parse_args()
    found = measure(LLM(given.model), given.conversations, given.prompt_tokens, given.new_tokens)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
