"""What is told of an answer besides its text: why it ended, how much it took, how likely it was."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from satchel.llm.generation import Generation
from satchel.llm.llm import LLM
from satchel.llm.prompt_logprobs import LogProb
from satchel.llm.tokenizer import Tokenizer

_FINISH = {"end_token": "stop", "stop_string": "stop"}


def new_id(prefix: str) -> str:
    """``prefix`` with what OpenAI puts behind it, a dash or an underscore."""
    return f"{prefix}{uuid.uuid4().hex}"


def now() -> int:
    return int(time.time())


def fingerprint(llm: LLM) -> str:
    """Tells models, and versions of them, apart."""
    return f"b{llm.program.checksum[:12]}"


def finish_reason(generation: Generation) -> str:
    """OpenAI's word for why a text ended."""
    return _FINISH.get(generation.stop_reason or "", "length")


def usage(generations: Sequence[Generation], answers: int = 1) -> dict[str, Any]:
    """A prompt counts once, however many answers it has."""
    prompts = generations[::answers]
    prompt = sum(g.stats.prompt_tokens for g in prompts)
    new = sum(g.stats.new_tokens for g in generations)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": {"cached_tokens": sum(g.stats.reused_tokens for g in prompts)},
    }


def timings(generation: Generation) -> dict[str, Any]:
    """How fast it was, as llama.cpp's server tells it."""
    stats = generation.stats
    return {
        "cache_n": stats.reused_tokens,
        "prompt_n": stats.prompt_tokens - stats.reused_tokens,
        "prompt_ms": stats.prefill_s * 1e3,
        "prompt_per_token_ms": _each(stats.prefill_s, stats.prompt_tokens - stats.reused_tokens),
        "prompt_per_second": stats.prefill_tok_s,
        "predicted_n": stats.new_tokens,
        "predicted_ms": stats.decode_s * 1e3,
        "predicted_per_token_ms": _each(stats.decode_s, stats.new_tokens - 1),
        "predicted_per_second": stats.decode_tok_s,
    }


def _each(seconds: float, count: int) -> float:
    return seconds * 1e3 / count if count > 0 else 0.0


def chat_logprobs(tokenizer: Tokenizer, found: Iterable[LogProb]) -> dict[str, Any]:
    """As /v1/chat/completions gives them."""
    content = []
    for token, value, best in found:
        others = [_token(tokenizer, each, ln) for each, ln in best]
        content.append(_token(tokenizer, token, value) | {"top_logprobs": others})
    return {"content": content, "refusal": None}


def probabilities(tokenizer: Tokenizer, found: Iterable[LogProb]) -> list[dict[str, Any]]:
    """As llama.cpp's /completion gives them."""

    def told(token: int, value: float) -> dict[str, Any]:
        return {"id": token} | _token(tokenizer, token, value)

    return [
        told(token, value) | {"top_logprobs": [told(each, ln) for each, ln in best]}
        for token, value, best in found
    ]


def _token(tokenizer: Tokenizer, token: int, value: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {"token": data.decode("utf-8", "replace"), "logprob": value, "bytes": list(data)}


class TextLogprobs:
    """As /v1/completions gives them, with each token's place in the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def take_prompt(self, prompt: Sequence[int], found: Sequence[LogProb]) -> dict[str, Any]:
        """Those of an echo; nothing is known of its first token."""
        made = self.take([(prompt[0], 0.0, []), *found])
        made["token_logprobs"][0] = made["top_logprobs"][0] = None
        return made

    def take(self, found: Iterable[LogProb]) -> dict[str, Any]:
        tokens: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for token, value, best in found:
            text = self._text(token)
            tokens.append(text)
            values.append(value)
            # Halves of characters look alike; then the likeliest counts.
            tops.append({self._text(each): ln for each, ln in reversed(best)})
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode("utf-8", "replace")
