"""A program being run: what it remembers between calls, and who runs what of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.errors import ExecutionError
from satchel.runtime.method import Method

if TYPE_CHECKING:
    from satchel.runtime.program import Program

MOST_THREADS = 1024


@dataclass(frozen=True)
class CacheUsage:
    """The pages of the caches, of 64 positions each."""

    pages: int
    most_pages: int
    page_bytes: int  # of all caches together
    sequences: int

    @property
    def bytes(self) -> int:
        return self.pages * self.page_bytes


class OneSequence:
    """For instances whose caches hold a single conversation at a time."""

    _taken = False

    def open_sequence(self) -> int:
        if self._taken:
            raise ExecutionError(
                "this program runs one conversation at a time",
                "Close the one that is open, or make another instance.",
            )
        self._taken = True
        return 0

    def fork_sequence(self, sequence: int, rows: int) -> int:
        raise ExecutionError("this program runs one conversation at a time")

    def truncate_sequence(self, sequence: int, rows: int) -> None:
        """There is nothing to give back."""

    def close_sequence(self, sequence: int) -> None:
        self._taken = False


class PlacedPart(NamedTuple):
    """Nodes of a method, ``first`` to before ``last``, that one executor runs."""

    method: str
    executor: str
    first: int
    last: int
    values_in: int
    values_out: int


class Refusal(NamedTuple):
    """Nodes that an executor did not take."""

    executor: str
    op: str
    reason: str
    nodes: int


class Instance:
    """A program being run: states (KV caches of any number of sequences) over shared weights.

    The caches of all sequences may take ``cache_memory`` bytes, by default half of the machine's
    memory; they take what the texts need. ``executors`` are asked for each node in their order, and
    the CPU runs what none of them takes; an executor serves one instance.
    """

    # Why a token may have other bits alone than in a block of another method; "" if it has not.
    other_bits_in_blocks = ""
    # Whether the likeliest tokens can be chosen where the logits are: see Method.run_chain.
    chooses_tokens = False
    chooses_by_chance = False  # and such as are drawn, or chosen by what the text has had
    chooses_together = False  # and those of several sequences in one run
    # Whether something else computes what the chip would, so that its speed says nothing.
    emulated = False

    @property
    def same_bits_in_blocks(self) -> bool:
        """Whether any method gives a token the same bits alone and in a block."""
        return not self.other_bits_in_blocks

    def __init__(
        self,
        program: Program,
        threads: int = 0,
        cache_memory: int = 0,
        executors: Sequence[_native.Executor] = (),
    ) -> None:
        self.program = program
        if not 0 <= threads <= MOST_THREADS:
            raise ExecutionError(f"there may be 1 to {MOST_THREADS} threads, not {threads}")
        self._native = _native.Instance(program._native, threads, cache_memory, list(executors))
        self.threads: int = self._native.threads
        self.kernels: str = self._native.kernels
        self.chooses_tokens = {part.executor for part in self.parts} == {"cpu"}

    @property
    def parts(self) -> list[PlacedPart]:
        """What runs where, method by method."""
        return [PlacedPart(*part) for part in self._native.parts]

    @property
    def refusals(self) -> list[Refusal]:
        """What executors left to the CPU, and why."""
        return [Refusal(*refusal) for refusal in self._native.refusals]

    @property
    def device_memory(self) -> int:
        """Bytes taken now of a memory that is not the host's: weights, caches, values."""
        return 0

    def measure_limits(self) -> tuple[float, float]:
        """What the memory gives in bytes a second, and how many products of bytes a second can be
        added up; 0 where that is not measured."""
        return _native.kernels.measure_read_bandwidth(self.threads), 0.0

    def open_sequence(self) -> int:
        """A new conversation's place in the caches, by number; 0 is for callers that name none."""
        return int(self._native.open_sequence())

    def fork_sequence(self, sequence: int, rows: int) -> int:
        """One that begins with the first ``rows`` tokens of another and shares their cache."""
        return int(self._native.fork_sequence(sequence, rows))

    def truncate_sequence(self, sequence: int, rows: int) -> None:
        """Give back what the tokens from ``rows`` on take of the cache."""
        self._native.truncate_sequence(sequence, rows)

    def close_sequence(self, sequence: int) -> None:
        self._native.close_sequence(sequence)

    @property
    def cache_usage(self) -> CacheUsage:
        """How much of the caches is in use, by all sequences together."""
        return CacheUsage(**self._native.cache_usage())

    def read_sequence(self, sequence: int, rows: int) -> dict[str, NDArray[np.uint8]]:
        """The first rows of every cache, [heads, rows, bytes of a row] each."""
        return {
            state["name"]: self._native.read_sequence(number, sequence, rows)
            for number, state in enumerate(self.program.states)
            if state["cache"]
        }

    def write_sequence(self, sequence: int, caches: Mapping[str, NDArray[np.uint8]]) -> None:
        """Put back what :meth:`read_sequence` gave."""
        for number, state in enumerate(self.program.states):
            if state["cache"]:
                rows = np.ascontiguousarray(caches[state["name"]])
                self._native.write_sequence(number, sequence, rows)

    def start_profile(self) -> None:
        """Time every op of the calls from here on, until :meth:`take_profile`."""
        self._native.start_profile()

    def take_profile(
        self,
    ) -> tuple[dict[str, tuple[int, float]], dict[str, tuple[int, float, float]]]:
        """How often each op ran and for how many seconds, and the same of each kind of layer with
        the multiply-adds in it; timing ends."""
        return self._native.take_profile()

    def reset(self) -> None:
        """All states (caches, buffers) are what they were at first."""
        self._native.reset()

    def method(self, name: str) -> Method:
        for number, info in enumerate(self.program.methods):
            if info["name"] == name:
                return Method(self._native, number, info)
        known = ", ".join(m["name"] for m in self.program.methods)
        raise ExecutionError(
            f"there is no method {name!r} in {self.program.path}", f"It has {known}."
        )
