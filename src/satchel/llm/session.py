"""A conversation's state: which tokens are in the KV cache, and feeding more of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError, ContextFullError, ExecutionError
from satchel.llm.lookahead.costs import StepCosts
from satchel.program.names import ACCEPT_METHOD, KV_METHOD, LOOKAHEAD_METHOD, PREFILL_METHOD
from satchel.runtime.program import Instance, Method, Program

Array = NDArray[np.float32]


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
        self.prefill_ar_len = _most_tokens(self._prefill) if self._prefill else 1
        self.costs = StepCosts()

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
        self._tree: Method | None = None
        if hybrid and self.program.has_method(LOOKAHEAD_METHOD + suffix):
            self._tree = self.instance.method(LOOKAHEAD_METHOD + suffix)
            self._accept = self.instance.method(ACCEPT_METHOD)
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

    @property
    def can_look_ahead(self) -> bool:
        """Whether several tokens can be computed in one step, as each would be alone."""
        return self._prefill is not None and (self.can_branch or self.instance.same_bits_in_blocks)

    @property
    def can_branch(self) -> bool:
        """Whether a step's tokens may be a tree; programs of older versions only take a line."""
        return self._tree is not None

    @property
    def most_rows(self) -> int:
        """The most tokens that :meth:`look` takes."""
        return _most_tokens(self._tree) if self._tree else self.prefill_ar_len

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

    def feed(self, tokens: Sequence[int]) -> Array:
        """Append tokens to the cache; the logits after the last one, [vocab]."""
        for logits in self.logits_of(tokens, len(tokens) - 1):
            row: Array = logits[0]
        return row

    def logits_of(self, tokens: Sequence[int], first: int = 0) -> Iterator[Array]:
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

    def _feed_block(self, block: Sequence[int], first: int) -> Array:
        if len(block) == 1 or self._prefill is None:
            return self._run(self._kv, block)
        return self._run(self._prefill, block, range(first, len(block)))

    def _run(self, method: Method, tokens: Sequence[int], *more: Sequence[int]) -> Array:
        started = time.perf_counter()
        given = (np.array(numbers, np.int32) for numbers in (tokens, [self.position], *more))
        (logits,) = method.run(*given)
        self.costs.record(len(tokens), time.perf_counter() - started)
        result: Array = logits
        return result

    def look(self, tokens: Sequence[int], parents: Sequence[int], rows: Sequence[int]) -> Array:
        """The logits after some of the tokens of a tree, [rows, vocab], without keeping them.

        ``parents`` says behind which of the tokens each one stands; -1 is the end of the text.
        :meth:`accept` keeps those that are to stay.
        """
        if len(tokens) > self.room:
            raise ContextFullError(f"{len(tokens)} tokens do not fit: {self.room} are free")
        line = list(parents) == list(range(-1, len(tokens) - 1))
        line = line and self.instance.same_bits_in_blocks
        if line and self._prefill and len(tokens) <= self.prefill_ar_len:
            return self._run(self._prefill, tokens, rows)
        if self._tree is None:
            raise ExecutionError(
                f"{self.program.path} has no {LOOKAHEAD_METHOD}", "Export it again."
            )
        return self._run(self._tree, tokens, parents, rows)

    def accept(self, nodes: Sequence[int], tokens: Sequence[int]) -> None:
        """Keep these of the tokens that were looked at last; they follow each other."""
        if list(nodes) != list(range(len(nodes))):
            self._accept.run(np.array(nodes, np.int32), np.array([self.position], np.int32))
        self.tokens += tokens

    def slide(self, keep: int) -> Array:
        """Make room when the context is full: drop the older half of what follows the first
        ``keep`` tokens, and read the rest again, since positions shift."""
        tail = self.tokens[keep:]
        recent = tail[len(tail) // 2 + len(tail) % 2 :] or tail[-1:]
        self.rewind(keep)
        return self.feed(recent)


def _most_tokens(method: Method) -> int:
    tokens = method.info["inputs"][0]["shape"][0]
    return int(tokens[1] if isinstance(tokens, tuple) else tokens)
