"""What the native tokenizer does not do."""

from __future__ import annotations


class NotCompiled(Exception):  # noqa: N818, it is an answer and no error: Python goes on without
    """A tokenizer has something that the native one lacks; the text says what."""
