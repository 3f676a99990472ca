"""A tokenizer in the key-value pairs of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources import byte_level
from satchel.llm.tokenizer_sources.pieces import (
    Normalization,
    PieceType,
    PieceVocabulary,
    bpe_json,
)
from satchel.llm.tokenizer_sources.pre_tokenizers import find_pre_tokenizer
from satchel.llm.tokenizer_sources.spec import TokenizerSpec
from satchel.llm.tokenizer_sources.tokenizers_json import (
    AddedToken,
    bpe_model,
    index_tokens,
    tokenizer_json,
)

_PREFIX = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"
# Converters often name one end token only. A model that writes one of these is done speaking.
_ENDS_OF_TURN = (
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
)


def read_gguf(source: TokenizerSource) -> TokenizerSpec:
    """Build the tokenizer that a GGUF file describes: byte-level BPE or sentencepiece's."""
    metadata, where = source.metadata, source.path.name
    model = metadata.get(_PREFIX + "model")
    tokens = [
        token or f"[EMPTY_{index}]"
        for index, token in enumerate(_list(metadata, "tokens", str, where))
    ]
    types = _list(metadata, "token_type", int, where, default=[int(PieceType.NORMAL)] * len(tokens))
    if len(types) != len(tokens):
        raise _damaged(where, f"{len(tokens)} tokens have {len(types)} types")
    if model == "gpt2":
        text, add_bos = _byte_level(metadata, tokens, types, where)
    elif model == "llama":
        text, add_bos = _pieces(metadata, tokens, types, where), True
    else:
        raise TokenizerError(
            f"{where}: tokenizers of kind {model!r} (tokenizer.ggml.model) are not supported",
            "Export from the model's safetensors folder with its tokenizer.json",
        )

    def token_id(name: str) -> int | None:
        value = metadata.get(f"{_PREFIX}{name}_token_id")
        if value is None:
            return None
        if not 0 <= int(value) < len(tokens):
            raise _damaged(where, f"{name} is token {value} of {len(tokens)}")
        return int(value)

    ids = {
        "bos_token": token_id("bos"),
        "eos_token": token_id("eos"),
        "unk_token": token_id("unknown"),
        "pad_token": token_id("padding"),
    }
    bos = ids["bos_token"]
    add_bos = bool(metadata.get(_PREFIX + "add_bos_token", add_bos))
    ends = [ids["eos_token"], token_id("eot"), token_id("eom")]
    ends += [at for at, token in enumerate(tokens) if token in _ENDS_OF_TURN and types[at] != 1]
    return TokenizerSpec(
        json=text,
        bos_token=None if bos is None else tokens[bos],
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        pad_id=ids["pad_token"],
        unk_id=ids["unk_token"],
        add_bos=add_bos and bos is not None,
        add_eos=bool(metadata.get(_PREFIX + "add_eos_token", False)),
        chat_template=_text(metadata.get(_TEMPLATE)),
        named_templates={
            name.removeprefix(_TEMPLATE + "."): str(template)
            for name, template in metadata.items()
            if name.startswith(_TEMPLATE + ".")
        },
        special_tokens={name: tokens[at] for name, at in ids.items() if at is not None},
    )


def _byte_level(
    metadata: Mapping[str, Any], tokens: list[str], types: list[int], where: str
) -> tuple[str, bool]:
    pre = find_pre_tokenizer(str(metadata.get(_PREFIX + "pre", "default")))
    merges = [
        _split_merge(merge, where) for merge in _list(metadata, "merges", str, where, default=[])
    ]
    text = tokenizer_json(
        bpe_model(index_tokens(tokens, where), merges, ignore_merges=pre.whole_words),
        [
            AddedToken(at, tokens[at], special=kind == PieceType.CONTROL)
            for at, kind in enumerate(types)
            if kind in (PieceType.CONTROL, PieceType.USER_DEFINED)
        ],
        normalizer={"type": "NFC"} if pre.nfc else None,
        pre_tokenizer=byte_level.pre_tokenizer(pre.patterns),
        decoder=byte_level.DECODER,
    )
    return text, pre.add_bos


def _split_merge(merge: str, where: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right):
        raise _damaged(where, f"{merge!r} is not a merge of two tokens")
    return left, right


def _pieces(metadata: Mapping[str, Any], tokens: list[str], types: list[int], where: str) -> str:
    scores = _list(metadata, "scores", float, where)
    vocabulary = PieceVocabulary(tokens, scores, types, where)
    unknown = metadata.get(_PREFIX + "unknown_token_id")
    unk_token = tokens[unknown] if unknown is not None and unknown < len(tokens) else None
    # Phi-3 was trained with the line end after a special token swallowed; the file cannot say so.
    swallow = metadata.get("general.architecture") == "phi3"
    plain = {"<unk>", "<s>", "<|endoftext|>"}
    added = [
        AddedToken(
            at,
            tokens[at],
            special=types[at] != PieceType.USER_DEFINED,
            rstrip=swallow and tokens[at] not in plain,
        )
        for at in vocabulary.of_type(PieceType.CONTROL, PieceType.UNKNOWN, PieceType.USER_DEFINED)
    ]
    prefix = bool(metadata.get(_PREFIX + "add_space_prefix", True))
    return bpe_json(vocabulary, Normalization(dummy_prefix=prefix), added, unk_token)


def _list(
    metadata: Mapping[str, Any],
    name: str,
    kind: type,
    where: str,
    default: list[Any] | None = None,
) -> list[Any]:
    values = metadata.get(_PREFIX + name, default)
    if values is None:
        raise _damaged(where, f"it has no {_PREFIX}{name}")
    if hasattr(values, "tolist"):  # an array
        values = values.tolist()
    values = list(values)
    if kind is float:
        return [float(value) for value in values]
    for index, value in enumerate(values):
        if not isinstance(value, kind):
            raise _damaged(where, f"{_PREFIX}{name}[{index}] is {value!r}")
    return values


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _damaged(where: str, why: str) -> TokenizerError:
    return TokenizerError(
        f"{where}: its tokenizer is damaged: {why}",
        "Get the file again, or export from a folder with a tokenizer.json",
    )
