"""A checkpoint's tokenizer made to fit its model, with what does not fit told at export."""

from __future__ import annotations

import json
from dataclasses import replace

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TemplateError, TokenizerError
from satchel.llm.tokenizer_sources.spec import TokenizerSpec
from satchel.remarks import remark

_SHOWN = 3


def fitting_tokenizer(source: TokenizerSource, rows: int) -> TokenizerSpec:
    """The tokenizer of a model whose embedding has so many rows."""
    from satchel.llm.tokenizer import read_tokenizer

    spec = fit_to_rows(read_tokenizer(source), rows)
    try_template(spec)
    return spec


def fit_to_rows(spec: TokenizerSpec, rows: int) -> TokenizerSpec:
    """Without the added tokens that the model has no row for, such as those of images.

    Their names are then text like any other. Words of the vocabulary proper are not left out:
    the tokenizer would be another one.
    """
    document = json.loads(spec.json)
    added = document.get("added_tokens") or []
    vocabulary = document["model"]["vocab"]
    words = (
        max(vocabulary.values(), default=0) if isinstance(vocabulary, dict) else len(vocabulary) - 1
    )
    largest = max([words, *(token["id"] for token in added)])
    if largest < rows:
        return spec
    beyond = [token for token in added if token["id"] >= rows]
    needed = {spec.bos_id, *spec.eos_ids, *spec.prefix_ids, *spec.suffix_ids}
    if words >= rows or any(token["id"] in needed for token in beyond):
        raise TokenizerError(
            f"the tokenizer has {largest + 1} tokens, and the embedding only {rows}",
            "Take the tokenizer that belongs to these weights.",
        )
    names = [str(token["content"]) for token in beyond]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    remark(
        f"The model has no row for {', '.join(names[:_SHOWN])}{more}, which the tokenizer names: "
        "in a prompt that is text like any other."
    )
    document["added_tokens"] = [token for token in added if token["id"] < rows]
    return replace(spec, json=json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def try_template(spec: TokenizerSpec) -> None:
    """Say at export, and not at the first answer, that a chat template does not work."""
    from satchel.llm.chat_template import ChatTemplate

    if not spec.chat_template:
        return
    try:
        template = ChatTemplate(spec.chat_template, spec.special_tokens)
        template.render([{"role": "user", "content": "Hello"}])
    except TemplateError as error:
        remark(
            f"{error.message}. The program will not chat; it can continue a text "
            "(satchel run FILE --raw)."
        )
