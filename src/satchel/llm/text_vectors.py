"""One vector for a text: the last hidden states of a decoder, pooled and brought to length 1."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError
from satchel.llm.sessions import Sessions
from satchel.program.names import HIDDEN_METHOD
from satchel.runtime.program import Program

Vector = NDArray[np.float32]


def pooling_of(program: Program) -> str:
    """How the program makes a vector of a text; ConfigError if it does not."""
    pooling = program.language_model.pooling
    if pooling not in ("last", "mean") or not program.has_method(HIDDEN_METHOD):
        raise ConfigError(
            f"{program.about.name} writes text and gives no embeddings",
            "Export it with --pooling last, or mean.",
        )
    return pooling


def text_vector(
    sessions: Sessions, tokens: Sequence[int], adapter: str | None = None
) -> Generator[None, None, Vector]:
    """Computes a text's vector, [hidden]: one step of the model each time that it goes on."""
    pooling = pooling_of(sessions.first.program)
    session = sessions.apart(adapter)
    total = np.zeros(0, np.float64)
    try:
        for hidden in session.hidden_states(tokens):
            if pooling == "last":
                total = hidden[-1].astype(np.float64)
            else:
                total = (total if total.size else 0.0) + hidden.astype(np.float64).sum(0)
            yield
    finally:
        session.close()
    return unit(total)


def unit(vector: NDArray[np.floating]) -> Vector:
    """The same direction with length 1; nothing stays nothing.

    >>> unit(np.array([3.0, 4.0]))
    array([0.6, 0.8], dtype=float32)
    """
    length = float(np.linalg.norm(vector))
    return (vector / (length or 1.0)).astype(np.float32)
