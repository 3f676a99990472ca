"""Reasoning apart from the answer: what stands between <think> and </think>."""

from __future__ import annotations

BEGIN, END = "<think>", "</think>"


def possible_beginning(text: str, mark: str) -> int:
    """How many characters at the end of a text may be the beginning of a mark.

    >>> possible_beginning("so </th", "</think>"), possible_beginning("so", "</think>")
    (4, 0)
    """
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


class ReasoningSplitter:
    """Divides a text that comes piece by piece.

    ``begun`` says that the prompt has opened the reasoning already.

    >>> splitter = ReasoningSplitter()
    >>> [splitter.push(piece) for piece in ("<thi", "nk>two a", "nd two</think>\\n\\n", "4")]
    [('', ''), ('two a', ''), ('nd two', ''), ('', '4')]
    """

    def __init__(self, begun: bool = False) -> None:
        self._state = "thinking" if begun else "start"
        self._held = ""
        self._fresh = True  # white space between the parts belongs to neither

    @property
    def thinking(self) -> bool:
        return self._state == "thinking"

    def push(self, text: str) -> tuple[str, str]:
        """What is reasoning and what is answer of the text so far, as far as that is certain."""
        self._held += text
        reasoning = ""
        if self._state == "start":
            self._begin()
        if self._state == "thinking":
            before, found, after = self._held.partition(END)
            keep = 0 if found else possible_beginning(before, END)
            reasoning = self._trimmed(before[: len(before) - keep])
            self._held = after if found else before[len(before) - keep :]
            if found:
                self._state, self._fresh = "answering", True
        answer = ""
        if self._state in ("answering", "plain"):
            answer, self._held = self._held, ""
            answer = self._trimmed(answer) if self._state == "answering" else answer
        return reasoning, answer

    def finish(self) -> tuple[str, str]:
        """What was held back."""
        rest, self._held = self._held, ""
        return (rest, "") if self._state == "thinking" else ("", rest)

    def _begin(self) -> None:
        text = self._held.lstrip()
        if text.startswith(BEGIN):
            self._state, self._held = "thinking", text[len(BEGIN) :]
        elif not BEGIN.startswith(text):
            self._state = "plain"

    def _trimmed(self, text: str) -> str:
        if self._fresh:
            text = text.lstrip()
            self._fresh = not text
        return text
