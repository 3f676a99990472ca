"""From text to token ids and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from satchel import _native
from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError, blaming
from satchel.llm.tokenizer_sources.backend import (
    SharedBackend,
    check_special_ids,
    panics,
    shared_backend,
)
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

__all__ = ["TokenDecoder", "Tokenizer", "TokenizerSpec", "read_tokenizer"]

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def read_tokenizer(source: TokenizerSource) -> TokenizerSpec:
    """Read a checkpoint's tokenizer, whatever its form, and make sure that it works.

    Example::

        spec = read_tokenizer(TokenizerSource("huggingface", Path("SmolLM2-135M-Instruct")))
        Tokenizer(spec).encode("Hello")
    """
    read = _reader(source.kind)
    advice = "The tokenizer's files are damaged or hostile: fetch them again."
    with blaming(TokenizerError, "The tokenizer holds a value of the wrong kind", advice):
        spec = read(source)
    if source.kind != "huggingface":  # that one has loaded its JSON already
        Tokenizer(spec)  # what a damaged vocabulary breaks, it breaks here
    return spec


def _reader(kind: str) -> Callable[[TokenizerSource], TokenizerSpec]:
    # Imported on demand: a run of a finished program needs none of them.
    if kind == "huggingface":
        from satchel.llm.tokenizer_sources.huggingface import read_huggingface as read
    elif kind == "sentencepiece":
        from satchel.llm.tokenizer_sources.sentencepiece_model import read_sentencepiece as read
    elif kind == "tiktoken":
        from satchel.llm.tokenizer_sources.tiktoken_ranks import read_tiktoken as read
    elif kind == "llama2c":
        from satchel.llm.tokenizer_sources.llama2c import read_llama2c as read
    elif kind == "gguf":
        from satchel.llm.tokenizer_sources.gguf_metadata import read_gguf as read
    elif kind == "whisper":
        from satchel.llm.tokenizer_sources.whisper_ranks import read_whisper as read
    else:
        raise TokenizerError(
            f"There is no tokenizer of kind {kind!r}",
            "Kinds are huggingface, sentencepiece, tiktoken, llama2c, gguf and whisper",
        )
    return read


class Tokenizer:
    """A tokenizer ready for use, built from its spec.

    With its ``compiled`` form, which programs carry, the native one does the work; without it, at
    export and where the native one does not know its parts, Hugging Face's `tokenizers` does.
    BOS and EOS are added here and never by the JSON's post-processor, so that a prompt from a
    chat template, which writes its own BOS, does not get a second one.
    """

    def __init__(self, spec: TokenizerSpec, compiled: _native.Tokenizer | None = None) -> None:
        self.spec = spec
        self._compiled = compiled
        # Without the native one it is needed at once, and what is damaged in it breaks here.
        self._library = None if compiled else shared_backend(spec.json)
        self._shown: tuple[int, ...] = ()  # special tokens that are text all the same
        self._end_ids = frozenset(spec.eos_ids)
        check_special_ids(spec, self._exists)

    def encode(
        self, text: str, add_bos: bool | None = None, parse_special: bool = True
    ) -> list[int]:
        """The ids of a text.

        ``add_bos`` is the tokenizer's own habit unless given; a prompt from a chat template is
        encoded with ``add_bos=False``. A BOS that is there already is not doubled. With
        ``parse_special=False`` the name of a special token in the text is just text.
        """
        if not isinstance(text, str):
            raise TokenizerError(f"There is no text to encode, but {text!r:.80}", "Give a text")
        with panics("The text cannot be encoded", "Check that it is valid Unicode"):
            ids = self._plain_ids(text, parse_special)
        wants_bos = self.spec.add_bos if add_bos is None else add_bos
        bos = self.spec.bos_id
        if wants_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        if add_bos is None:
            prefix = list(self.spec.prefix_ids)
            if ids[: len(prefix)] != prefix:
                ids[:0] = prefix
            if self.spec.add_eos and self.spec.eos_ids:
                ids.append(self.spec.eos_ids[0])
            ids += self.spec.suffix_ids
        return ids

    def _plain_ids(self, text: str, parse_special: bool) -> list[int]:
        if self._compiled is not None:
            return self._compiled.encode(text, parse_special)
        backend, mode_lock = self._shared
        with mode_lock:
            backend.encode_special_tokens = not parse_special
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of some ids."""
        with panics("The tokens cannot be decoded", "The tokenizer is damaged: export it again"):
            if self._compiled is not None:
                return self._compiled.decode(ids, skip_special)
            text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def decoder(self, after: Sequence[int] = ()) -> TokenDecoder:
        """Decodes one token after the other, going on from the text of the tokens ``after``."""
        if self._compiled is not None:
            return _native.TokenDecoder(self._compiled, after, self._shown)
        return WindowDecoder(self, after)

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to a text, special ones as they are written; maybe half a character."""
        if self._compiled is not None:
            return self._compiled.bytes_of(token_id)
        return self.decode([token_id], skip_special=False).encode("utf-8")

    @cached_property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones included."""
        if self._compiled is not None:
            return self._compiled.tokens
        size: int = self._backend.get_vocab_size(with_added_tokens=True)
        return size

    def showing(self, names: Iterable[str]) -> Tokenizer:
        """The same tokenizer, but for some special tokens that a :class:`TextStream` shows."""
        found = {token_id for name in names if (token_id := self.id_of(name)) is not None}
        shown = tuple(sorted(found & self._special_ids))
        if not shown:
            return self
        other = copy.copy(self)
        other._shown = shown
        return other

    def with_template(self, template: str) -> Tokenizer:
        """The same tokenizer with another chat template."""
        return Tokenizer(replace(self.spec, chat_template=template), self._compiled)

    def is_text(self, token_id: int) -> bool:
        """Whether a :class:`TextStream` shows it."""
        return token_id not in self._special_ids or token_id in self._shown

    def name_of(self, token_id: int) -> str | None:
        """A token as it is in the vocabulary, or ``None`` if there is none."""
        token: str | None = self._backend.id_to_token(token_id)
        return token

    def is_end(self, token_id: int) -> bool:
        """Whether this token ends a text."""
        return token_id in self._end_ids

    def id_of(self, token: str) -> int | None:
        """The id of a token given as it is in the vocabulary, or ``None``."""
        token_id: int | None = self._backend.token_to_id(token)
        return token_id

    def _exists(self, token_id: int) -> bool:
        if self._compiled is not None:
            return self._compiled.exists(token_id)
        return self._backend.id_to_token(token_id) is not None

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self._backend.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    @property
    def _shared(self) -> SharedBackend:
        if self._library is None:
            self._library = shared_backend(self.spec.json)
        return self._library

    @property
    def _backend(self) -> Backend:
        return self._shared.backend


class TokenDecoder(Protocol):
    """Takes tokens, gives text that will not change any more."""

    def push(self, token_id: int, /) -> str: ...

    def finish(self) -> str: ...


class WindowDecoder:
    """For tokenizers that are not compiled: decode the last tokens twice, give the difference."""

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = list(after[-4:])
        self._shown = len(self._window)  # so many tokens of the window are text already

    def push(self, token_id: int, /) -> str:
        self._window.append(token_id)
        fresh = self._fresh()
        if not fresh or fresh.endswith(_UNKNOWN):
            return ""
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        return fresh

    def finish(self) -> str:
        return self._fresh()

    def _fresh(self) -> str:
        before = self._text(self._window[: self._shown])
        return self._text(self._window)[len(before) :]

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(
            [one for one in ids if self._tokenizer.is_text(one)], skip_special=False
        )
