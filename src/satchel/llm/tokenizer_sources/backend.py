"""Loading of a `tokenizers` JSON with errors of our own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import TokenizerError
from satchel.files import FETCH_LFS, LFS_POINTER
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def load_backend(text: str, where: str) -> Backend:
    """A `tokenizers.Tokenizer` that neither truncates nor pads."""
    from tokenizers import Tokenizer as Backend

    if text.startswith(LFS_POINTER.decode()):
        raise TokenizerError(f"{where} is only a pointer of Git LFS", FETCH_LFS)
    advice = "Get the file again, or update the package 'tokenizers' if it is newer than yours"
    with panics(f"{where} is not a usable tokenizer", advice):
        backend = Backend.from_str(text)
        backend.no_truncation()
        backend.no_padding()
    return backend


class SharedBackend(NamedTuple):
    """A backend, and who encodes with it holds the lock: how it does is a setting of it."""

    backend: Backend
    mode_lock: threading.Lock


_LARGEST_KEPT = 1 << 20  # letters; larger tokenizers take too much memory to be kept


def shared_backend(text: str) -> SharedBackend:
    """A backend that is not changed; the last ones of a small size are kept.

    The library loses a kilobyte with each of its tokenizers that has encoded something, which
    counts where one model is opened over and over.
    """
    make = _kept_backend if len(text) <= _LARGEST_KEPT else _kept_backend.__wrapped__
    return make(text)


@lru_cache(maxsize=2)
def _kept_backend(text: str) -> SharedBackend:
    return SharedBackend(load_backend(text, "The tokenizer"), threading.Lock())


@contextmanager
def panics(message: str, advice: str) -> Iterator[None]:
    """What goes wrong in the library is an error of ours; a panic in Rust is not an Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise TokenizerError(f"{message} ({error})", advice) from None


def check_special_ids(spec: TokenizerSpec, exists: Callable[[int], bool]) -> None:
    """Raise unless the tokens that the session relies on exist."""
    ids = [("bos_id", spec.bos_id), *(("eos_ids", end) for end in spec.eos_ids)]
    ids += [("prefix_ids", one) for one in spec.prefix_ids]
    ids += [("suffix_ids", one) for one in spec.suffix_ids]
    for name, token_id in ids:
        if token_id is None:
            continue
        if not 0 <= token_id < 2**31 or not exists(token_id):
            raise TokenizerError(
                f"The tokenizer's {name} names token {token_id}, which does not exist",
                "The tokenizer's files belong to different models; get them from one place",
            )
