"""Tokenizers compiled for the native core: tables that are mapped from a program, not parsed.

``compile_tokenizer`` makes the section ``text`` of a program. docs/format.md is its spec.
"""

from __future__ import annotations

from satchel.llm.compiled.refusal import NotCompiled
from satchel.llm.compiled.tokenizer import compile_tokenizer

__all__ = ["NotCompiled", "compile_tokenizer"]
