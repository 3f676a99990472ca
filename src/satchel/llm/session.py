"""A conversation's state: which tokens are in the KV cache, and feeding more of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError, ContextFullError, ExecutionError
from satchel.runtime.program import Instance, Program

KV_METHOD = "kv_forward"
PREFILL_METHOD = "prefill_forward"


class Session:
    """Feeds tokens to a program and remembers what its cache holds.

    A program with ``prefill_forward`` reads prompts many tokens at a time (hybrid mode); one
    without reads them one by one (kv mode). ``mode`` asks for one of the two; by default the
    program's methods decide. ``instance`` runs the methods, by default a new one of the program;
    ``adapter`` is one of those that the program has, or None.
    """

    def __init__(
        self,
        program: Program,
        threads: int = 0,
        mode: str | None = None,
        instance: Instance | None = None,
        adapter: str | None = None,
    ) -> None:
        if not program.has_method(KV_METHOD):
            kind = program.metadata.get("kind", "unknown")
            raise ExecutionError(f"{program.path} is not a language model but of the kind {kind!r}")
        available = "hybrid" if program.has_method(PREFILL_METHOD) else "kv"
        if mode == "hybrid" and available == "kv":
            raise ConfigError(
                f"{program.path} has no {PREFILL_METHOD}", "Export it with --mode hybrid."
            )
        if mode not in (None, "hybrid", "kv"):
            raise ConfigError(f"there is no mode {mode!r}", "Modes: hybrid, kv.")
        self.program = program
        self.mode = mode or available
        self.instance = instance or program.instance(threads)
        self.tokens: list[int] = []
        self.adapter: str | None = None
        self.use_adapter(adapter)
        # From the program's own types, not from its metadata: the cache is what it is.
        self.context = int(program.states[0]["shape"][1])
        self.prefill_ar_len = 1
        if self._prefill:
            tokens = self._prefill.info["inputs"][0]["shape"][0]
            self.prefill_ar_len = tokens[1] if isinstance(tokens, tuple) else tokens

    def use_adapter(self, adapter: str | None) -> None:
        """Go on with another adapter, or with None. The cache is the old one's, and is emptied."""
        suffix = f"@{adapter}" if adapter else ""
        if not self.program.has_method(KV_METHOD + suffix):
            names = [m["name"] for m in self.program.methods]
            known = [n.partition("@")[2] for n in names if n.startswith(f"{KV_METHOD}@")]
            raise ConfigError(
                f"{self.program.path} has no adapter {adapter!r}",
                f"It has {', '.join([*known, 'none'])}.",
            )
        self._kv = self.instance.method(KV_METHOD + suffix)
        hybrid = self.mode == "hybrid"
        self._prefill = self.instance.method(PREFILL_METHOD + suffix) if hybrid else None
        if adapter != self.adapter:
            self.tokens.clear()
        self.adapter = adapter

    @property
    def position(self) -> int:
        """How many tokens the cache holds."""
        return len(self.tokens)

    @property
    def room(self) -> int:
        """How many more tokens fit."""
        return self.context - len(self.tokens)

    def rewind(self, position: int) -> None:
        """Forget every token from ``position`` on; what lies before stays in the cache."""
        if not 0 <= position <= len(self.tokens):
            raise ExecutionError(
                f"cannot rewind to {position}: there are {len(self.tokens)} tokens"
            )
        del self.tokens[position:]

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens are in the cache already."""
        count = 0
        for mine, theirs in zip(self.tokens, tokens, strict=False):
            if mine != theirs:
                break
            count += 1
        return count

    def feed(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens to the cache; the logits after the last one, [vocab]."""
        for logits in self.logits_of(tokens, len(tokens) - 1):
            row: NDArray[np.float32] = logits[0]
        return row

    def logits_of(self, tokens: Sequence[int], first: int = 0) -> Iterator[NDArray[np.float32]]:
        """Append tokens to the cache; the logits after each from ``first`` on.

        They come a block at a time, [n, vocab], since those of a long text would fill the
        memory. The tokens are in the cache when the last block has been taken.
        """
        if not tokens:
            raise ExecutionError("there are no tokens to feed")
        if len(tokens) > self.room:
            raise ContextFullError(
                f"{len(tokens)} tokens do not fit: {self.room} of {self.context} are free",
                "Shorten the prompt, or export with a larger --context.",
            )
        start = 0
        while start < len(tokens):
            # The last block may be shorter, also at the very end of the context.
            block = tokens[start : start + self.prefill_ar_len]
            wanted = max(first - start, 0)
            # Logits are wanted of one row at least: a block that needs none gives its last.
            logits = self._feed_block(block, min(wanted, len(block) - 1))
            self.tokens += block
            start += len(block)
            if wanted < len(block):
                yield logits

    def _feed_block(self, block: Sequence[int], first: int) -> NDArray[np.float32]:
        ids = np.array(block, np.int32)
        position = np.array([self.position], np.int32)
        if len(block) == 1 or self._prefill is None:
            (logits,) = self._kv.run(ids, position)
        else:
            rows = np.arange(first, len(block), dtype=np.int32)
            (logits,) = self._prefill.run(ids, position, rows)
        result: NDArray[np.float32] = logits
        return result

    def slide(self, keep: int) -> NDArray[np.float32]:
        """Make room when the context is full: drop the older half of what follows the first
        ``keep`` tokens, and read the rest again, since positions shift."""
        tail = self.tokens[keep:]
        recent = tail[len(tail) // 2 + len(tail) % 2 :] or tail[-1:]
        self.rewind(keep)
        return self.feed(recent)
