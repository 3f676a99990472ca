"""llama2.c's ``tokenizer.bin``: sentencepiece's pieces and scores, without their types."""

from __future__ import annotations

import struct

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources.files import read_bytes
from satchel.llm.tokenizer_sources.pieces import (
    SPACE,
    Normalization,
    PieceType,
    PieceVocabulary,
    bpe_json,
)
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

_SPECIAL = ("<unk>", "<s>", "</s>")
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_OLD_BYTES = tuple(map(chr, range(256)))  # how the first llama2.c wrote them
_MAX_PIECE = 1 << 16


def read_llama2c(source: TokenizerSource) -> TokenizerSpec:
    """Read a tokenizer.bin. It does not say how many tokens it has: it ends with the last one."""
    pieces, scores = _read_pieces(read_bytes(source.path), source.path.name)
    fixed = len(_SPECIAL) + len(_BYTES)
    if tuple(pieces[3:fixed]) not in (_BYTES, _OLD_BYTES):
        raise TokenizerError(
            f"{source.path.name}: tokens 3 to 258 are not the 256 bytes",
            "Give the tokenizer.bin that belongs to the model (llama2.c's tokenizer.py writes it)",
        )
    # Spaces were put for sentencepiece's mark when the file was written, and line ends put
    # around the names of BOS and EOS.
    pieces = [*_SPECIAL, *_BYTES, *(piece.replace(" ", SPACE) for piece in pieces[fixed:])]
    types = [PieceType.UNKNOWN, PieceType.CONTROL, PieceType.CONTROL]
    types += [PieceType.BYTE] * len(_BYTES)
    types += [PieceType.NORMAL] * (len(pieces) - fixed)
    vocabulary = PieceVocabulary(pieces, scores, [int(kind) for kind in types], source.path.name)
    return TokenizerSpec(
        json=bpe_json(vocabulary, Normalization()),
        bos_token="<s>",
        bos_id=1,
        eos_ids=(2,),
        unk_id=0,
        add_bos=True,
        special_tokens={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    )


def _read_pieces(data: bytes, where: str) -> tuple[list[str], list[float]]:
    pieces: list[str] = []
    scores: list[float] = []
    at = 4  # behind the length of the longest token
    while at < len(data):
        if at + 8 > len(data):
            raise _damaged(where, len(pieces))
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= length <= min(_MAX_PIECE, len(data) - at):
            raise _damaged(where, len(pieces))
        try:
            pieces.append(data[at : at + length].decode("utf-8"))
        except UnicodeDecodeError:
            raise _damaged(where, len(pieces)) from None
        scores.append(score)
        at += length
    if len(pieces) < 3:
        raise _damaged(where, len(pieces))
    return pieces, scores


def _damaged(where: str, token: int) -> TokenizerError:
    return TokenizerError(
        f"{where} is damaged or not llama2.c's tokenizer.bin: it breaks off at token {token}",
        "Get the file again",
    )
