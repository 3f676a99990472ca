"""Speed of guessing ahead beside plain decoding, on the same text in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from satchel.errors import ExecutionError
from satchel.llm.lookahead.decoder import LookaheadStats, lookahead_for
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.llm.sampling import Sampler, SamplingOptions
from satchel.llm.session import Session


@dataclass(frozen=True)
class LookaheadBench:
    """What to measure: ``auto`` or ``on``, with these sizes."""

    mode: str
    sizes: LookaheadSizes | None = None


def measure_lookahead(
    session: Session,
    bench: LookaheadBench,
    prompt: Sequence[int],
    new_tokens: int,
    runs: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Plain and guessing runs in turn; medians, and that both gave the same tokens."""
    plain_s: list[float] = []
    guessing_s: list[float] = []
    for number in range(runs):
        tell(f"plain and lookahead, run {number + 1} of {runs}")
        seconds, wanted, _ = decode(session, prompt, new_tokens, "off", None)
        plain_s.append(seconds)
        seconds, tokens, stats = decode(session, prompt, new_tokens, bench.mode, bench.sizes)
        guessing_s.append(seconds)
        if tokens != wanted:
            raise ExecutionError(
                "lookahead gave another text than plain decoding",
                "Please report this, with the program and SATCHEL_ISA; --lookahead off avoids it.",
            )
    made = new_tokens - 1
    ratios = [p / g for p, g in zip(plain_s, guessing_s, strict=True)]
    found = stats.to_dict(0.0)
    keys = ("mode", "ngram", "window", "gcap", "tokens_per_step", "acceptance")
    return {
        **{key: found[key] for key in keys},
        "prompt_tokens": len(prompt),
        "tok_s": made / statistics.median(guessing_s),
        "plain_tok_s": made / statistics.median(plain_s),
        "speedup": statistics.median(ratios),
        "speedup_spread": [min(ratios), max(ratios)],
    }


def decode(
    session: Session,
    prompt: Sequence[int],
    new_tokens: int,
    mode: str,
    sizes: LookaheadSizes | None,
) -> tuple[float, list[int], LookaheadStats]:
    """Seconds after the first token, the tokens, and what guessing gave; end tokens are ignored."""
    sampler = Sampler(SamplingOptions(temperature=0))
    decoder = lookahead_for(session, sampler, mode, sizes)
    session.rewind(0)
    tokens = [sampler.next(session.feed(prompt))]
    started = time.perf_counter()
    decoder.begin()
    while len(tokens) < new_tokens:
        tokens += session.complete(decoder.next(tokens[-1], new_tokens - len(tokens)))
    return time.perf_counter() - started, tokens, decoder.stats
