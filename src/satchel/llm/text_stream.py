"""Text from tokens as they come: never half a character, never part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from satchel.errors import ConfigError
from satchel.llm.token_text import make_decoder
from satchel.llm.tokenizer import Tokenizer


class TextStream:
    """Turns token ids into text, piece by piece.

    All pieces together are ``tokenizer.decode`` of all ids, up to the first stop string. With
    ``after``, the ids that went before, the text goes on from theirs: its first word keeps the
    space that ``decode`` would take from the start of a text.

    Example::

        stream = TextStream(tokenizer, stop=["\\n\\n"])
        for token_id in generate():
            print(stream.push(token_id), end="")
            if stream.stopped:
                break
        print(stream.finish())
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), after: Sequence[int] = ()
    ) -> None:
        if isinstance(stop, str) or not all(stop):
            raise ConfigError("A stop string is empty", "Give a list of texts, or none at all")
        self.stop_string: str | None = None
        self._decoder = make_decoder(tokenizer, after)
        self._stop = tuple(stop)
        self._held = ""  # decoded, but perhaps the beginning of a stop string

    @property
    def stopped(self) -> bool:
        """Whether a stop string has come; what follows it is dropped."""
        return self.stop_string is not None

    def push(self, token_id: int) -> str:
        """Take one token and give the text that is certain now; often it is empty."""
        if self.stopped:
            return ""
        return self._release(self._decoder.push(token_id), last=False)

    def finish(self) -> str:
        """The rest of the text. Bytes that never became a character come out as U+FFFD."""
        if self.stopped:
            return ""
        return self._release(self._decoder.finish(), last=True)

    def _release(self, text: str, last: bool) -> str:
        if not self._stop:
            return text
        self._held += text
        found = [(self._held.find(one), one) for one in self._stop if one in self._held]
        if found:
            # The one that is complete first, so that it does not matter how the text was cut.
            at, self.stop_string = min(found, key=lambda hit: (hit[0] + len(hit[1]), hit[0]))
            return self._held[:at]
        keep = 0 if last else self._possible_beginning()
        cut = len(self._held) - keep
        released, self._held = self._held[:cut], self._held[cut:]
        return released

    def _possible_beginning(self) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        longest = max(len(one) for one in self._stop) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(one.startswith(self._held[-length:]) for one in self._stop):
                return length
        return 0
