"""How much a step may have in it so that nobody's next token comes late."""

from __future__ import annotations

import math

from satchel.program.names import SHORT_STEP

_KEPT = 0.97  # of what is known when something new is measured
_FREE_ROWS = 8  # until more is known: so many more tokens are thought to double a step's time
_FOR_EACH = 3  # tokens of prompts that a step has room for in any case, for each conversation
_OUTLIER = 3.0  # times what was expected: something else took the processor


class Pace:
    """Learns what steps take, a part for the weights and a part for each token, and bounds them.

    A step in which prompts are read beside answers takes at most ``stretch`` times as long as one
    in which all conversations answer, those too that wait for their first token: it does not become
    shorter because few answer yet. Where the weights are read faster than a few tokens are computed
    this would be next to nothing of a prompt, so it may have a few tokens for each conversation in
    any case. The more there are the more wait for their prompts, and the longer a step takes
    without them. One with guesses takes at most ``guessing`` times as long as one without. Who asks
    at the same time is answered at the same time, if that costs nobody more than ``together``
    seconds: answers that begin while prompts are read would all be slow.

    >>> pace = Pace(stretch=2.0)
    >>> for rows in (1, 2, 4, 8, 16):
    ...     pace.record(rows, 0.020 + 0.002 * rows)
    >>> pace.most(answering=1, conversations=2)  # 48 ms
    14
    """

    def __init__(self, stretch: float = 2.0, guessing: float = 1.75, together: float = 3.0) -> None:
        self.stretch, self.guessing, self.together = stretch, guessing, together
        self._sums = [0.0] * 5  # of 1, rows, seconds, rows², rows x seconds

    def record(self, rows: int, seconds: float) -> None:
        """A step of so many tokens took so long."""
        if self._sums[0]:
            start, each = self._line()
            seconds = min(seconds, _OUTLIER * (start + each * rows))
        new = (1.0, rows, seconds, rows * rows, rows * seconds)
        self._sums = [_KEPT * old + one for old, one in zip(self._sums, new, strict=True)]

    def _line(self) -> tuple[float, float]:
        """Seconds of a step without tokens, and of each token; both above zero."""
        count, rows, seconds, squares, products = self._sums
        mean, level = rows / count, seconds / count
        spread = squares / count - mean * mean
        if spread > 0.01 * mean * mean:
            each = (products / count - mean * level) / spread
            if 0 < each * mean < level:
                return level - each * mean, each
        return level * _FREE_ROWS / (_FREE_ROWS + mean), level / (_FREE_ROWS + mean)

    def _times(self, stretch: float, rows: int) -> int:
        if not self._sums[0]:
            return SHORT_STEP
        start, each = self._line()
        return min(SHORT_STEP, int((stretch - 1) * start / each + stretch * rows + 1e-6))

    def reading_s(self, tokens: int) -> float:
        """What so many tokens of prompts take, if nobody answers; endless until it is known."""
        if not self._sums[0]:
            return math.inf
        start, each = self._line()
        return start * math.ceil(tokens / SHORT_STEP) + each * tokens

    def most(self, answering: int, conversations: int) -> int:
        """The tokens of a step in which so many of answers go on, of all conversations' steps."""
        least = min(SHORT_STEP, answering + _FOR_EACH * conversations)
        return max(self._times(self.stretch, conversations), least)

    def guesses(self, answers: int) -> int:
        """The tokens that each of so many answers may have in a step, its own and guesses."""
        return max(1, self._times(self.guessing, answers) // max(1, answers))
