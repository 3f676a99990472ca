"""The models of a server that make vectors of texts: BERT and its kind."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satchel.errors import InputError
from satchel.llm.text_vectors import Vector, unit
from satchel.serve.completions import is_token
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.listing import listed
from satchel.text.encoder import TextEncoder


@dataclass(frozen=True)
class ServedEncoder:
    name: str
    encoder: TextEncoder


class Encoders:
    """By name; a request that names none gets the first, where no other model could answer."""

    def __init__(self, given: Mapping[str, TextEncoder]) -> None:
        self.created = int(time.time())
        self._by_name = {name: ServedEncoder(name, one) for name, one in given.items()}

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def find(self, name: object, alone: bool) -> ServedEncoder | None:
        """The one of that name; with ``alone``, the first where the request names none."""
        if name is None and alone and self._by_name:
            return next(iter(self._by_name.values()))
        return self._by_name.get(name.removesuffix(":latest")) if isinstance(name, str) else None

    def describe(self) -> list[dict[str, Any]]:
        return [
            listed(
                name,
                self.created,
                one.encoder.program.about,
                one.encoder.program.size,
                one.encoder.rules.max_length,
                chat=False,
                embeddings=one.encoder.dimensions,
            )
            for name, one in self._by_name.items()
        ]


def read_encoder_texts(
    model: ServedEncoder, fields: Fields, name: str, most: int
) -> list[list[int]]:
    """The tokens of each text; ``truncate`` (Ollama's) cuts those that are too long."""
    given = fields.get(name)
    if isinstance(given, str) or (isinstance(given, list) and given and is_token(given[0])):
        given = [given]
    if not isinstance(given, list) or not 1 <= len(given) <= most:
        raise fields.wrong(name, f"must be a text, or a list of 1 to {most} texts or of tokens")
    cut = fields.switch("truncate")
    found: list[list[int]] = []
    for each in given:
        if isinstance(each, str):
            try:
                found.append(model.encoder.tokens(each, cut))
            except InputError as error:
                raise ApiError(
                    400, str(error), param=name, code="context_length_exceeded"
                ) from None
        elif isinstance(each, list) and each and all(map(is_token, each)):
            found.append(each)
        else:
            raise fields.wrong(name, "must be a text, or a list of texts or of tokens")
    return found


def encoder_vectors(model: ServedEncoder, texts: list[list[int]]) -> list[Vector]:
    """Of length 1, as OpenAI's are."""
    try:
        return [unit(vector) for vector in model.encoder.embed_tokens(texts)]
    except InputError as error:
        raise ApiError(400, str(error), param="input") from None
