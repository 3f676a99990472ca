"""Functions of libraries that ask what only a run tells, in forms without the question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from satchel.torch.detectors import detector_forms
from satchel.torch.global_attention import global_attention_forms


@contextmanager
def without_questions() -> Iterator[None]:
    """While it is on, the functions of what has been imported are these, with the same results."""
    places = [
        (owner, name, getattr(owner, name), form)
        for owner, name, form in (*detector_forms(), *global_attention_forms())
        if hasattr(owner, name)
    ]
    try:
        for owner, name, _, form in places:
            setattr(owner, name, form)
        yield
    finally:
        for owner, name, own, _ in places:
            setattr(owner, name, own)
