"""/v1/embeddings, and Ollama's /api/embed and /api/embeddings: vectors of texts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Generator
from typing import Any

import numpy as np

from satchel.errors import SatchelError
from satchel.llm.text_vectors import Vector, pooling_of, text_vector, unit
from satchel.serve import completions
from satchel.serve.encoders import ServedEncoder
from satchel.serve.errors import ApiError
from satchel.serve.fields import Fields
from satchel.serve.models import ServedModel
from satchel.serve.settings import Settings

MOST_TEXTS = 2048  # as OpenAI has it


def read_texts(
    model: ServedModel, fields: Fields, settings: Settings, name: str = "input"
) -> list[list[int]]:
    """The tokens of each text; ApiError if the model gives no vectors."""
    try:
        pooling_of(model.llm.program)
    except SatchelError as error:
        raise ApiError(
            400, error.on_command_line, param="model", code="model_not_supported"
        ) from None
    return completions.read_prompts(model, fields, settings, name, MOST_TEXTS)


def vectors(model: ServedModel, texts: list[list[int]]) -> Generator[None, None, list[Vector]]:
    """All of them, step by step of the model."""
    made = []
    for tokens in texts:
        made.append((yield from text_vector(model.llm.sessions, tokens, model.adapter)))
    return made


async def embed(model: ServedModel, texts: list[list[int]]) -> list[Vector]:
    """Computed beside the answers of others, and given up when nobody waits any more."""
    work: asyncio.Future[list[Vector]] = model.engine.run(vectors(model, texts))
    return await work


def openai_answer(
    model: ServedModel | ServedEncoder, fields: Fields, texts: list[list[int]], found: list[Vector]
) -> dict[str, Any]:
    """As OpenAI tells them; ``dimensions`` keeps the first numbers of each."""
    form = fields.choice("encoding_format", ("float", "base64"), "float")
    size = fields.integer("dimensions", 1, found[0].size)
    if size is not None:
        found = [unit(vector[:size]) for vector in found]
    read = sum(map(len, texts))
    return {
        "object": "list",
        "model": fields.text("model") or model.name,
        "data": [
            {"object": "embedding", "index": index, "embedding": _written(vector, form)}
            for index, vector in enumerate(found)
        ],
        "usage": {"prompt_tokens": read, "total_tokens": read},
    }


def _written(vector: Vector, form: str) -> str | list[float]:
    if form == "base64":
        return base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode()
    return [float(number) for number in vector]


def ollama_answer(
    model: ServedModel | ServedEncoder, fields: Fields, texts: list[list[int]], found: list[Vector]
) -> dict[str, Any]:
    """As Ollama tells them."""
    return {
        "model": fields.text("model") or model.name,
        "embeddings": [_written(vector, "float") for vector in found],
        "prompt_eval_count": sum(map(len, texts)),
    }


def ollama_vector(
    _model: ServedModel, _fields: Fields, _texts: list[list[int]], found: list[Vector]
) -> dict[str, Any]:
    """As Ollama's older clients want it: the vector of one text."""
    return {"embedding": _written(found[0], "float")}
