"""Text from tokens as they come: never half a character, never part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from satchel import _native
from satchel.errors import ConfigError
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
        for text in stop:
            try:
                text.encode()
            except (AttributeError, UnicodeEncodeError):
                told = f"A stop string is no text: {ascii(text)[:80]}"
                raise ConfigError(told, "Give a list of texts") from None
        self._decoder = tokenizer.decoder(after)
        self._stops = _native.StopStrings(list(stop))

    @property
    def stop_string(self) -> str | None:
        """The stop string that has come; what follows it is dropped."""
        return self._stops.stopped

    @property
    def stopped(self) -> bool:
        """Whether one has come."""
        return self._stops.stopped is not None

    def push(self, token_id: int) -> str:
        """Take one token and give the text that is certain now; often it is empty."""
        return self._stops.push(self._decoder.push(token_id))

    def finish(self) -> str:
        """The rest of the text. Bytes that never became a character come out as U+FFFD."""
        return self._stops.push(self._decoder.finish(), last=True)
