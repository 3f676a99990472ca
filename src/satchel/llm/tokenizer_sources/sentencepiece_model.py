"""``tokenizer.model`` as sentencepiece writes it: BPE and unigram."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources.files import read_bytes
from satchel.llm.tokenizer_sources.huggingface import apply_folder_settings
from satchel.llm.tokenizer_sources.pieces import (
    Normalization,
    PieceType,
    PieceVocabulary,
    bpe_json,
    unigram_json,
)
from satchel.llm.tokenizer_sources.protobuf import read_fields
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

_UNIGRAM, _BPE = 1, 2
_OTHER_TYPES = {3: "word", 4: "char"}


@dataclass
class _Trainer:
    """The settings of the training run that matter afterwards, with sentencepiece's defaults."""

    model_type: int = _UNIGRAM
    space_as_suffix: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1


@dataclass
class _Model:
    pieces: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    trainer: _Trainer = field(default_factory=_Trainer)
    # The default of the format, not of ours: remove_extra_whitespaces is on unless it says no.
    normalization: Normalization = field(
        default_factory=lambda: Normalization(remove_extra_whitespaces=True)
    )


def read_sentencepiece(source: TokenizerSource) -> TokenizerSpec:
    """Read a model file, and the tokenizer_config.json beside it if there is one."""
    where = source.path.name
    model = _parse(memoryview(read_bytes(source.path)), where)
    trainer = model.trainer
    if not model.pieces:
        raise TokenizerError(f"{where} has no pieces", "Get the file again, it is damaged")
    if trainer.space_as_suffix:
        raise TokenizerError(
            f"{where} writes the space after a word (treat_whitespace_as_suffix)",
            "Only tokenizers that write it before a word are supported",
        )
    vocabulary = PieceVocabulary(model.pieces, model.scores, model.types, where)
    if trainer.model_type == _BPE:
        text = bpe_json(vocabulary, model.normalization)
    elif trainer.model_type == _UNIGRAM:
        text = unigram_json(vocabulary, model.normalization)
    else:
        kind = _OTHER_TYPES.get(trainer.model_type, str(trainer.model_type))
        raise TokenizerError(
            f"{where} is a sentencepiece model of type {kind!r}",
            "Only 'bpe' and 'unigram' are supported",
        )

    def known(token_id: int) -> int | None:
        return token_id if 0 <= token_id < len(model.pieces) else None

    names = {
        "bos_token": known(trainer.bos_id),
        "eos_token": known(trainer.eos_id),
        "unk_token": known(trainer.unk_id),
        "pad_token": known(trainer.pad_id),
    }
    bos, eos = names["bos_token"], names["eos_token"]
    spec = TokenizerSpec(
        json=text,
        bos_token=None if bos is None else model.pieces[bos],
        bos_id=bos,
        eos_ids=() if eos is None else (eos,),
        pad_id=names["pad_token"],
        unk_id=names["unk_token"],
        add_bos=bos is not None,
        special_tokens={name: model.pieces[at] for name, at in names.items() if at is not None},
    )
    return apply_folder_settings(spec, source.path.parent)


def _parse(message: memoryview, where: str) -> _Model:
    model = _Model()
    for number, value in read_fields(message, where):
        if isinstance(value, int):
            continue
        if number == 1:
            _parse_piece(value, model, where)
        elif number == 2:
            model.trainer = _parse_trainer(value, where)
        elif number == 3:
            model.normalization = _parse_normalization(value, where)
    return model


def _parse_piece(message: memoryview, model: _Model, where: str) -> None:
    piece, score, kind = "", 0.0, int(PieceType.NORMAL)
    for number, value in read_fields(message, where):
        if number == 1 and not isinstance(value, int):
            try:
                piece = str(value, "utf-8")
            except UnicodeDecodeError:
                raise TokenizerError(
                    f"{where}: piece {len(model.pieces)} is not UTF-8",
                    "Get the file again, it is damaged",
                ) from None
        elif number == 2 and not isinstance(value, int) and len(value) == 4:
            (score,) = struct.unpack("<f", value)
        elif number == 3 and isinstance(value, int):
            kind = value
    model.pieces.append(piece)
    model.scores.append(score)
    model.types.append(kind)


def _parse_trainer(message: memoryview, where: str) -> _Trainer:
    settings = {number: v for number, v in read_fields(message, where) if isinstance(v, int)}

    def token_id(number: int, default: int) -> int:
        value = settings.get(number, default)
        return -1 if value >= 2**31 else value  # negative numbers are written as huge ones

    return _Trainer(
        model_type=settings.get(3, _UNIGRAM),
        space_as_suffix=bool(settings.get(24, 0)),
        unk_id=token_id(40, 0),
        bos_id=token_id(41, 1),
        eos_id=token_id(42, 2),
        pad_id=token_id(43, -1),
    )


def _parse_normalization(message: memoryview, where: str) -> Normalization:
    settings = dict(read_fields(message, where))
    name, charsmap = settings.get(1, b""), settings.get(2, b"")
    return Normalization(
        charsmap=b"" if isinstance(charsmap, int) else bytes(charsmap),
        charsmap_name="" if isinstance(name, int) else str(name, "utf-8", "replace"),
        dummy_prefix=bool(settings.get(3, 1)),
        remove_extra_whitespaces=bool(settings.get(4, 1)),
    )
