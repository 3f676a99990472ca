"""A conversation in a file: its messages and its part of the KV cache, for another process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satchel.errors import InputError
from satchel.files import atomic_write
from satchel.llm.session import Session

if TYPE_CHECKING:
    from satchel.llm.sessions import Sessions

_TOKENS = "tokens"
_AGAIN = "Begin a new conversation, or use the program that it was saved with."


def save_session(path: Path, session: Session, messages: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write a session, and the messages that its tokens were made of, as a safetensors file."""
    from safetensors.numpy import save

    arrays = dict(session.instance.read_sequence(session.sequence, session.position))
    arrays[_TOKENS] = np.array(session.tokens, np.int64)
    facts = {
        "program": session.program.checksum,
        "adapter": session.adapter or "",
        "messages": json.dumps(list(messages)),
    }
    with atomic_write(path) as file:
        file.write(save(arrays, facts))


def load_session(path: Path, sessions: Sessions) -> list[dict[str, Any]]:
    """Take up a conversation that was saved; its messages. What comes next reuses its cache."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            facts = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        messages = json.loads(facts.get("messages", "[]"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a saved conversation: {error}", _AGAIN) from None
    first = sessions.first
    if facts.get("program") != first.program.checksum:
        raise InputError(f"{path} was saved with another program", _AGAIN)
    session = Session(
        first.program,
        mode=first.mode,
        instance=first.instance,
        adapter=facts.get("adapter") or None,
    )
    _fill(path, session, arrays)
    good = isinstance(messages, list) and all(isinstance(m, dict) for m in messages)
    if not good:
        raise InputError(f"the messages in {path} are not messages", _AGAIN)
    sessions.give_back(session)
    return [dict(message) for message in messages]


def _fill(path: Path, session: Session, arrays: Mapping[str, Any]) -> None:
    caches = [state["name"] for state in session.program.states if state["cache"]]
    tokens = arrays.get(_TOKENS, np.zeros((1, 1)))
    count = len(tokens)
    fits = tokens.dtype == np.int64 and tokens.ndim == 1 and count <= session.context
    fits = fits and set(arrays) == {_TOKENS, *caches}
    fits = fits and all(
        a.dtype == np.uint8 and a.ndim == 3 and a.shape[1] == count
        for name, a in arrays.items()
        if name != _TOKENS
    )
    if not fits:
        session.close()
        raise InputError(f"{path} does not fit the program's caches", _AGAIN)
    session.instance.write_sequence(session.sequence, arrays)
    session.tokens += tokens.tolist()
