"""Loading of a `tokenizers` JSON with errors of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def load_backend(text: str, where: str) -> Backend:
    """A `tokenizers.Tokenizer` that neither truncates nor pads."""
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_str(text)
    except BaseException as error:  # a panic in Rust is not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        raise TokenizerError(
            f"{where} is not a usable tokenizer ({error})",
            "Get the file again, or update the package 'tokenizers' if it is newer than yours",
        ) from None
    backend.no_truncation()
    backend.no_padding()
    return backend


def check_special_ids(spec: TokenizerSpec, backend: Backend) -> None:
    """Raise unless the tokens that the session relies on exist."""
    ids = [("bos_id", spec.bos_id), *(("eos_ids", end) for end in spec.eos_ids)]
    ids += [("prefix_ids", one) for one in spec.prefix_ids]
    ids += [("suffix_ids", one) for one in spec.suffix_ids]
    for name, token_id in ids:
        if token_id is None:
            continue
        if not 0 <= token_id < 2**31 or backend.id_to_token(token_id) is None:
            raise TokenizerError(
                f"The tokenizer's {name} names token {token_id}, which does not exist",
                "The tokenizer's files belong to different models; get them from one place",
            )
