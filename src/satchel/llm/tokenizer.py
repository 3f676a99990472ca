"""From text to token ids and back."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError, blaming
from satchel.llm.tokenizer_sources.backend import check_special_ids, panics, shared_backend
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

__all__ = ["Tokenizer", "TokenizerSpec", "read_tokenizer"]


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

    BOS and EOS are added here and never by the JSON's post-processor, so that a prompt from a
    chat template, which writes its own BOS, does not get a second one.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        self.spec = spec
        self._backend, self._mode_lock = shared_backend(spec.json)
        self._end_ids = frozenset(spec.eos_ids)
        check_special_ids(spec, self._backend)

    def encode(
        self, text: str, add_bos: bool | None = None, parse_special: bool = True
    ) -> list[int]:
        """The ids of a text.

        ``add_bos`` is the tokenizer's own habit unless given; a prompt from a chat template is
        encoded with ``add_bos=False``. A BOS that is there already is not doubled. With
        ``parse_special=False`` the name of a special token in the text is just text.
        """
        with self._mode_lock:
            self._backend.encode_special_tokens = not parse_special
            with panics("The text cannot be encoded", "Check that it is valid Unicode"):
                ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
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

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of some ids."""
        with panics("The tokens cannot be decoded", "The tokenizer is damaged: export it again"):
            text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special)
        return text

    @cached_property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones included."""
        size: int = self._backend.get_vocab_size(with_added_tokens=True)
        return size

    def showing(self, names: Iterable[str]) -> Tokenizer:
        """The same tokenizer, but for some special tokens that a :class:`TextStream` shows."""
        shown = {token_id for name in names if (token_id := self.id_of(name)) is not None}
        if not shown & self._special_ids:
            return self
        other = copy.copy(self)
        other.__dict__["_special_ids"] = self._special_ids - shown
        return other

    def visible_token(self, token_id: int, special: bool = False) -> str | None:
        """A token as it is in the vocabulary; ``None`` for those that ``decode`` leaves out,
        unless ``special``."""
        if token_id in self._special_ids and not special:
            return None
        token: str | None = self._backend.id_to_token(token_id)
        return token

    def decoder_steps(self) -> list[dict[str, Any]]:
        """The steps by which tokens become text, as the JSON has them."""
        decoder = self._backend.decoder
        if decoder is None:
            return [{"type": "none"}]
        state = json.loads(decoder.__getstate__())
        steps: list[dict[str, Any]] = state.get("decoders", [state])
        return steps

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self._backend.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    def is_end(self, token_id: int) -> bool:
        """Whether this token ends a text."""
        return token_id in self._end_ids

    def id_of(self, token: str) -> int | None:
        """The id of a token given as it is in the vocabulary, or ``None``."""
        token_id: int | None = self._backend.token_to_id(token)
        return token_id
