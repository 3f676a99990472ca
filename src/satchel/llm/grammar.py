"""Texts of a given form: a JSON Schema, a regular expression or a grammar rules tokens out.

`llguidance` does the work; it is the extra ``structured``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError, ExecutionError
from satchel.llm.tokenizer import Tokenizer

# As Python writes JSON: models know it well, and all that is not a value is forced.
_JSON_FORM = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_LONGEST = 1 << 20  # letters of a schema or grammar
_LITERAL = ("const", "enum", "default", "examples")  # whose values are no schemas
_ADVICE = "Simplify it, or leave the keyword out."


class Matcher(Protocol):
    """What is used of llguidance's LLMatcher."""

    def is_error(self) -> bool: ...
    def get_error(self) -> str: ...
    def deep_copy(self) -> Matcher: ...
    def is_stopped(self) -> bool: ...
    def compute_ff_tokens(self) -> list[int]: ...
    def consume_token(self, token: int) -> bool: ...
    def consume_tokens(self, tokens: list[int]) -> bool: ...
    def validate_tokens(self, tokens: list[int]) -> int: ...
    def compute_bitmask(self) -> bytes: ...


class Guide:
    """Follows one text, token by token, and says what may come next."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def masked(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits, with minus infinity for what may not come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            # Behind its first line comes the whole state of the library.
            reason = self._matcher.get_error().split("\n", 1)[0][:300]
            raise ExecutionError(f"the grammar cannot go on: {reason}", _ADVICE)
        allowed = np.unpackbits(bits, count=min(logits.size, bits.size * 8), bitorder="little")
        result = np.full_like(logits, -np.inf)
        result[: allowed.size][allowed == 1] = logits[: allowed.size][allowed == 1]
        return result

    def take(self, token: int) -> None:
        """This token was chosen."""
        self._matcher.consume_token(token)

    def would_take(self, tokens: Sequence[int]) -> bool:
        """Whether these may come next, one after the other; nothing is taken."""
        return not self.finished and self._matcher.validate_tokens(list(tokens)) == len(tokens)

    def forced(self, most: int) -> list[int]:
        """The tokens that must come next whatever the model says; they count as taken."""
        if most < 1 or self._matcher.is_stopped():
            return []
        tokens = list(self._matcher.compute_ff_tokens())[:most]
        if tokens:
            self._matcher.consume_tokens(tokens)
        return tokens

    @property
    def finished(self) -> bool:
        """Whether nothing can come any more."""
        return self._matcher.is_stopped()


class Grammar:
    """A form of text, ready for use; each text gets a guide of its own."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def guide(self) -> Guide:
        return Guide(self._matcher.deep_copy())


class Grammars:
    """Makes grammars for one tokenizer.

    >>> from satchel import LLM
    >>> grammars = Grammars(LLM("model.satchel").tokenizer)
    >>> guide = grammars.regex("ab+").guide()
    >>> guide.masked(np.zeros(320, np.float32)).argmax() == grammars.tokenizer.id_of("a")
    np.True_
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise ConfigError(
                "texts of a given form need llguidance", "pip install 'satchel[structured]'"
            ) from None
        self.tokenizer = tokenizer
        ends = list(tokenizer.spec.eos_ids)
        self._tokens = LLTokenizer(tokenizer.spec.json, eos_token=ends or None)

    def schema(self, schema: Mapping[str, Any] | str | type) -> Grammar:
        """JSON that a JSON Schema allows: a dictionary, its text, or a pydantic class."""
        from llguidance import LLMatcher

        try:
            document = _with_formats(schema_of(schema), self._knows_format)
            text = LLMatcher.grammar_from_json_schema(document, overrides=_JSON_FORM)  # type: ignore[arg-type]
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the JSON Schema cannot be read: {error}", _ADVICE) from None
        return self._compiled(text, "JSON Schema")

    @cache  # noqa: B019 - there are few of them, and they live as long as the tokenizer
    def _knows_format(self, name: str) -> bool:
        from llguidance import LLMatcher

        alone = LLMatcher.grammar_from_json_schema({"type": "string", "format": name})
        return not LLMatcher(self._tokens, alone, log_level=0).is_error()

    def regex(self, pattern: str) -> Grammar:
        """All of the text matches a regular expression."""
        from llguidance import LLMatcher

        return self._compiled(LLMatcher.grammar_from_regex(pattern), "regular expression")

    def grammar(self, text: str) -> Grammar:
        """A grammar in Lark's form, or in llama.cpp's (GBNF)."""
        from llguidance import grammar_from

        try:
            return self._compiled(grammar_from("grammar", text), "grammar")
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the grammar cannot be read: {error}", _ADVICE) from None

    def choice(self, texts: Sequence[str]) -> Grammar:
        """One of some texts."""
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ConfigError("there is nothing to choose from", "Give a list of texts.")
        rule = " | ".join(json.dumps(text) for text in texts)
        return self._compiled(self._lark(f"start: {rule}"), "choice")

    def _lark(self, text: str) -> str:
        from llguidance import LLMatcher

        return LLMatcher.grammar_from_lark(text)

    def _compiled(self, text: str, what: str) -> Grammar:
        from llguidance import LLMatcher

        if len(text) > _LONGEST:
            raise ConfigError(f"the {what} is too long: {len(text)} letters", _ADVICE)
        matcher = LLMatcher(self._tokens, text, log_level=0)
        if not matcher.is_error():
            first = matcher.deep_copy()
            first.compute_bitmask()  # some fail at the first token only, as {"$ref": "#"} does
            if not first.is_error():
                return Grammar(matcher)
            matcher = first
        reason = " ".join(matcher.get_error().split("<state>", 1)[0].split())[:300]
        raise ConfigError(f"the {what} is not supported: {reason}", _ADVICE)


def schema_of(given: Mapping[str, Any] | str | type) -> dict[str, Any]:
    """A JSON Schema as a dictionary.

    >>> schema_of('{"type": "integer"}')
    {'type': 'integer'}
    """
    if isinstance(given, type) and hasattr(given, "model_json_schema"):
        document: Any = given.model_json_schema()
    elif isinstance(given, str):
        try:
            document = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the JSON Schema is not JSON: {error}") from None
    else:
        document = given
    if isinstance(document, bool):  # any JSON, or none
        document = {} if document else {"not": {}}
    if not isinstance(document, Mapping):
        raise ConfigError("a JSON Schema is an object", "Give a dictionary or a pydantic class.")
    return dict(document)


def _with_formats(schema: Any, known: Callable[[str], bool]) -> Any:
    """The schema without formats that are not known: these say nothing (JSON Schema's own rule)."""
    if isinstance(schema, list):
        return [_with_formats(each, known) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value if key in _LITERAL else _with_formats(value, known)
        for key, value in schema.items()
        if key != "format" or not isinstance(value, str) or known(value)
    }
