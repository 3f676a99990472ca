"""A conversation's state: which tokens are in the KV cache, and feeding more of them."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError, ContextFullError, ExecutionError
from satchel.llm.lookahead.costs import StepCosts
from satchel.llm.sampling import SamplingOptions
from satchel.llm.steps import (
    Draw,
    Feed,
    Look,
    Part,
    Request,
    RowSource,
    Steps,
    T,
    prompt_pieces,
    run_draws,
    run_step,
    run_with_room,
)
from satchel.program.names import (
    ACCEPT_METHOD,
    EMBED_METHOD,
    EMBEDDED_METHOD,
    HIDDEN_METHOD,
    KV_METHOD,
    LOOKAHEAD_METHOD,
    PREFILL_METHOD,
    adapted,
)
from satchel.runtime.program import Instance, Method, Program

Array = NDArray[np.float32]
_BLOCK = 64  # tokens that are compared at once


class Session:
    """Feeds tokens to a program and remembers what its cache holds.

    A program with ``prefill_forward`` reads prompts many tokens at a time (hybrid mode); one
    without reads them one by one (kv mode). ``mode`` asks for one of the two; by default the
    program's methods decide. ``instance`` runs the methods, by default a new one of the program;
    sessions of one instance share its weights and, where their texts begin alike, its cache.
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
        self._has_rows = False  # whether some were fed as embeddings
        self._source: RowSource | None = None
        self._use_sequence(self.instance.open_sequence())
        self.adapter: str | None = None
        self.use_adapter(adapter)
        # From the program's own types, not from its metadata: the cache is what it is.
        self.context = int(next(s for s in program.states if s["cache"])["shape"][1])
        self.prefill_ar_len = _most_tokens(self._prefill) if self._prefill else 1
        self.costs = StepCosts()
        # Asked when the caches are full: frees some of their memory, or returns False.
        self.make_room: Callable[[], bool] = lambda: False
        # Whether others fill the steps, so that there is no room for guesses.
        self.crowded = False
        # The tokens of a step with guesses, and of a piece of a prompt; less where others wait.
        self.most_guessed = self.longest_piece = 1 << 30

    def check_adapter(self, adapter: str | None) -> str:
        """What the names of an adapter's methods end with; ConfigError if there is none such."""
        suffix = f"@{adapter}" if adapter else ""
        if not self.program.has_method(KV_METHOD + suffix):
            names = [m["name"] for m in self.program.methods]
            known = [n.partition("@")[2] for n in names if n.startswith(f"{KV_METHOD}@")]
            raise ConfigError(
                f"{self.program.path} has no adapter {adapter!r}",
                f"It has {', '.join([*known, 'none'])}.",
            )
        return suffix

    def use_adapter(self, adapter: str | None) -> None:
        """Go on with another adapter, or with None. The cache is the old one's, and is emptied."""
        suffix = self.check_adapter(adapter)
        self._kv = self.instance.method(KV_METHOD + suffix)
        hybrid = self.mode == "hybrid"
        self._prefill = self.instance.method(PREFILL_METHOD + suffix) if hybrid else None
        self._tree: Method | None = None
        if hybrid and self.program.has_method(LOOKAHEAD_METHOD + suffix):
            self._tree = self.instance.method(LOOKAHEAD_METHOD + suffix)
            self._accept = self.instance.method(ACCEPT_METHOD)
        if adapter != self.adapter:
            self.rewind(0)
        self.adapter = adapter

    def _use_sequence(self, sequence: int) -> None:
        self.sequence = sequence
        self._close = weakref.finalize(self, self.instance.close_sequence, sequence)

    def close(self) -> None:
        """Give back what the conversation takes of the cache; it cannot go on."""
        self.tokens.clear()
        self._close()

    def fork(self, rows: int) -> Session:
        """A conversation of its own that begins with the first ``rows`` tokens of this one, which
        both have in one cache."""
        forked = object.__new__(type(self))
        forked.__dict__.update(self.__dict__)
        forked._use_sequence(self.instance.fork_sequence(self.sequence, rows))
        forked.tokens = self.tokens[:rows]
        return forked

    def show(self, source: RowSource | None) -> None:
        """Take the rows of images from here, for as long as their prompt is answered."""
        self._source = source
        self._has_rows = self._has_rows or source is not None

    def prepare(self, tokens: Sequence[int]) -> bool:
        """Do a part of the work before these can be fed, if images need some; else False."""
        return self._source is not None and self._source.make_one([t for t in tokens if t < 0])

    def embedded(self, tokens: Sequence[int]) -> Array:
        """What the layers see of words and of what stands for images, [n, hidden]."""
        numbers = np.asarray(tokens, np.int64)
        shown = numbers < 0
        if self._source is None:
            raise ExecutionError("the rows of an image are not there any more")
        rows = self._source.rows(numbers[shown].tolist())
        made = np.empty((len(numbers), rows.shape[1]), np.float32)
        made[shown] = rows
        if not shown.all():
            made[~shown] = self.embed(numbers[~shown].tolist())
        return made

    @property
    def words(self) -> Sequence[int]:
        """The tokens that are some: what stands for images and sounds is left out."""
        return [t for t in self.tokens if t >= 0] if self._has_rows else self.tokens

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

    @property
    def most_together(self) -> int:
        """The most tokens of a step in which several conversations may take part."""
        return max(self.prefill_ar_len, _most_tokens(self._tree) if self._tree else 1)

    def rewind(self, position: int) -> None:
        """Forget every token from ``position`` on; what lies before stays in the cache."""
        if not 0 <= position <= len(self.tokens):
            raise ExecutionError(
                f"cannot rewind to {position}: there are {len(self.tokens)} tokens"
            )
        del self.tokens[position:]
        self.instance.truncate_sequence(self.sequence, position)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens are in the cache already."""
        count, mine, theirs = 0, self.tokens, list(tokens)
        while count < len(mine) and mine[count : count + _BLOCK] == theirs[count : count + _BLOCK]:
            count += _BLOCK
        pairs = zip(mine[count : count + _BLOCK], theirs[count : count + _BLOCK], strict=False)
        same = takewhile(lambda pair: pair[0] == pair[1], pairs)
        return min(count, len(mine)) + sum(1 for _ in same)

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
        start = 0
        for count in self.pieces(len(tokens)):
            block = tokens[start : start + count]
            wanted = range(min(max(first - start, 0), count), count)
            logits = self._run(Part(self, block, wanted))
            self.tokens += block
            start += count
            if wanted:
                yield logits

    def embed(self, tokens: Sequence[int]) -> Array:
        """What the layers see of tokens, [n, hidden]: what :meth:`feed_embeddings` takes."""
        method = self.instance.method(self._embedding_method(EMBED_METHOD))
        most = _most_tokens(method)
        blocks = (tokens[start : start + most] for start in range(0, len(tokens), most))
        return np.concatenate([method.run(np.asarray(block, np.int32))[0] for block in blocks])

    def feed_embeddings(self, embedded: Array) -> Array:
        """Append what stands for an image, a sound or tokens, [n, hidden]; the logits after it.

        In :attr:`tokens` each row has a number below zero that is its content's, so that texts
        share what they have in common of such rows too.
        """
        method = self._embedded_method()
        rows = np.ascontiguousarray(embedded, np.float32)
        if rows.ndim != 2:
            raise ExecutionError(f"embeddings are [n, hidden], not {list(rows.shape)}")
        self._has_rows, start = True, 0
        for count in self.pieces(len(rows)):
            block = rows[start : start + count]
            arrays = {
                "embedded": block,
                "position": np.arange(self.position, self.position + count, dtype=np.int32),
                "sequence": np.full(count, self.sequence, np.int32),
                "rows": np.array([count - 1], np.int32),
            }
            (logits,) = run_with_room(method, [arrays[name] for name in method.inputs], self)
            self.tokens += [number_of(row) for row in block]
            start += count
        last: Array = logits[0]
        return last

    def hidden_states(self, tokens: Sequence[int]) -> Iterator[Array]:
        """Append tokens to the cache; the last hidden states of all, in blocks, [n, hidden]."""
        method = self.instance.method(adapted(HIDDEN_METHOD, self.adapter))
        start = 0
        for count in self.pieces(len(tokens)):
            block = tokens[start : start + count]
            arrays = {
                "tokens": np.asarray(block, np.int32),
                "position": np.arange(self.position, self.position + count, dtype=np.int32),
                "sequence": np.full(count, self.sequence, np.int32),
                "rows": np.arange(count, dtype=np.int32),
            }
            (hidden,) = run_with_room(method, [arrays[name] for name in method.inputs], self)
            self.tokens += block
            start += count
            yield hidden

    def _embedded_method(self) -> Method:
        name = adapted(EMBEDDED_METHOD, self.adapter)
        return self.instance.method(self._embedding_method(name))

    def _embedding_method(self, name: str) -> str:
        if not self.program.has_method(name):
            raise ConfigError(
                f"{self.program.path} takes no embeddings", "Export it with --embeddings."
            )
        return name

    def pieces(self, count: int) -> list[int]:
        """In which steps so many tokens are read; ContextFullError if there is no room."""
        if not count:
            raise ExecutionError("there are no tokens to feed")
        self.require_room(count)
        if not self.instance.same_bits_in_blocks:  # there is nothing to keep, so few steps
            most = self.prefill_ar_len
            return [min(most, count - done) for done in range(0, count, most)]
        return list(prompt_pieces(count, min(self.prefill_ar_len, self.longest_piece)))

    def require_room(self, count: int) -> None:
        if count > self.room:
            raise ContextFullError(
                f"{count} tokens do not fit: {self.room} of {self.context} are free",
                "Shorten the prompt, or export with a larger --context.",
            )

    def method_for(self, tokens: int, trees: bool = False, shows: bool = False) -> Method:
        """The method of this session's adapter that takes a step of so many tokens.

        Where a single token may have other bits in a block, each kind of step keeps to a method.
        """
        # A program without it says of a number below zero that there is no such token.
        if shows and self.program.has_method(adapted(EMBEDDED_METHOD, self.adapter)):
            return self._embedded_method()
        if tokens == 1 and not trees:
            return self._kv
        most = self.prefill_ar_len if self._prefill else 0
        if self._prefill and tokens <= most and not trees:
            return self._prefill
        if self._tree is None:
            raise ExecutionError(
                f"{self.program.path} takes no step of {tokens} tokens", "Export it again."
            )
        return self._tree

    def _run(self, part: Part) -> Array:
        started = time.perf_counter()
        (logits,) = run_step([part])
        self.costs.record(len(part.tokens), time.perf_counter() - started)
        return logits

    def answer(self, request: Request) -> Array:
        """Do what a generation asks for, in a step of its own."""
        if isinstance(request, Feed):
            return self.feed(request.tokens)
        if isinstance(request, Draw):
            self.require_room(1)
            return run_draws([(self, request)])[0]
        return self.look(request)

    @property
    def chooses_tokens(self) -> bool:
        """Whether :meth:`chain` can be asked."""
        return self.instance.chooses_tokens

    def chain(
        self,
        token: int,
        options: SamplingOptions,
        random: Sequence[float],
        answer_from: int = 0,
    ) -> list[int]:
        """Append ``token`` and those that are chosen behind it, where the logits are.

        The tokens behind it, at most one for each random number; the last is not in the text yet.
        """
        tokens: list[int] = self.answer(Draw(token, options, random, answer_from)).tolist()
        return tokens

    def complete(self, steps: Steps[T]) -> T:
        """Run all the steps that something asks for, and return its result."""
        try:
            request = next(steps)
            while True:
                request = steps.send(self.answer(request))
        except StopIteration as end:
            result: T = end.value
            return result

    def look(self, request: Look) -> Array:
        """The logits after some of the tokens of a tree, without keeping them."""
        self.require_room(len(request.tokens))
        return self._run(self.part_of(request))

    def part_of(self, request: Look) -> Part:
        part = Part(self, request.tokens, request.rows, request.parents)
        if part.is_line and self.instance.same_bits_in_blocks:
            return Part(self, request.tokens, request.rows)  # which any method takes
        return part

    def accept(self, nodes: Sequence[int], tokens: Sequence[int]) -> None:
        """Keep these of the tokens that were looked at last; they follow each other."""
        if list(nodes) != list(range(len(nodes))):
            where = (np.array([n], np.int32) for n in (self.position, self.sequence))
            self._accept.run(np.array(nodes, np.int32), *where)
        self.tokens += tokens

    def slide(self, keep: int) -> list[int]:
        """Make room when the context is full: drop the older half of what follows the first
        ``keep`` tokens, and return the rest, which is to be read again, since positions shift."""
        tail = self.tokens[keep:]
        recent = tail[len(tail) // 2 + len(tail) % 2 :] or tail[-1:]
        self.rewind(keep)
        return recent


def _most_tokens(method: Method) -> int:
    tokens = method.info["inputs"][0]["shape"][0]
    return int(tokens[1] if isinstance(tokens, tuple) else tokens)


def number_of(row: Array) -> int:
    """A number below zero that tells an embedding's content from others'."""
    digest = hashlib.blake2b(row.tobytes(), digest_size=7).digest()
    return -1 - int.from_bytes(digest, "little")
