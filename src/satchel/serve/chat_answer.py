"""From a model's text to the parts of a chat message: reasoning, content, calls of tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from satchel.llm.grammar import Grammar
from satchel.serve.models import ServedModel
from satchel.serve.reasoning import BEGIN, END, ReasoningSplitter

Delta = dict[str, Any]


class ContentParser(Protocol):
    """Finds calls of tools in the content."""

    def push(self, text: str) -> list[Delta]: ...

    def finish(self) -> list[Delta]: ...


class PlainContent:
    """All is content."""

    def push(self, text: str) -> list[Delta]:
        return [{"content": text}] if text else []

    def finish(self) -> list[Delta]:
        return []


class ChatAnswer:
    """One answer: takes text as it comes, gives deltas as OpenAI streams them, and keeps the whole
    message."""

    def __init__(self, splitter: ReasoningSplitter | None, content: ContentParser) -> None:
        self._splitter, self._content = splitter, content
        self.reasoning_tokens = 0
        self.message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}

    def push(self, text: str, tokens: int = 0) -> list[Delta]:
        """Take the text of so many tokens."""
        reasoning, answer = self._splitter.push(text) if self._splitter else ("", text)
        if self._splitter and self._splitter.thinking:
            self.reasoning_tokens += tokens
        return self._keep(reasoning, self._content.push(answer) if answer else [])

    def finish(self) -> list[Delta]:
        reasoning, answer = self._splitter.finish() if self._splitter else ("", "")
        deltas = self._content.push(answer) if answer else []
        deltas = self._keep(reasoning, [*deltas, *self._content.finish()])
        if self.message["content"] is None and not self.called:
            self.message["content"] = ""
        return deltas

    @property
    def called(self) -> bool:
        """Whether a tool was called."""
        return bool(self.message.get("tool_calls"))

    def _keep(self, reasoning: str, deltas: list[Delta]) -> list[Delta]:
        if reasoning:
            deltas = [{"reasoning_content": reasoning}, *deltas]
        for delta in deltas:
            for name in ("content", "reasoning_content"):
                if name in delta:
                    self.message[name] = (self.message.get(name) or "") + delta[name]
            for call in delta.get("tool_calls", []):
                self._keep_call(call)
        return deltas

    def _keep_call(self, delta: dict[str, Any]) -> None:
        calls = self.message.setdefault("tool_calls", [])
        if delta["index"] == len(calls):
            calls.append({"id": delta["id"], "type": "function", "function": {"arguments": ""}})
        function = calls[delta["index"]]["function"]
        function["name"] = delta["function"].get("name", function.get("name"))
        function["arguments"] += delta["function"].get("arguments", "")


def reasoning_marks(model: ServedModel) -> tuple[str, ...]:
    """What stands around the reasoning of a model whose template knows it."""
    return (BEGIN, END) if END in (model.llm.tokenizer.spec.chat_template or "") else ()


def splitter_for(
    model: ServedModel, prompt: Sequence[int], form: Grammar | None = None
) -> ReasoningSplitter | None:
    """For models whose template knows reasoning; the template may have opened it. An answer of a
    given form has none."""
    if form is not None or not reasoning_marks(model):
        return None
    tail = model.llm.tokenizer.decode(list(prompt[-8:]), skip_special=False)
    return ReasoningSplitter(begun=tail.rstrip().endswith(BEGIN))
