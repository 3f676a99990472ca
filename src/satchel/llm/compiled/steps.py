"""Normalisers and pre-tokenisers as lists of numbers, which the native tokenizer goes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.llm.compiled.classes import CharacterClass
from satchel.llm.compiled.refusal import NotCompiled
from satchel.llm.compiled.regex import Classes, compile_regex

# native/llm/steps.h
REPLACE_TEXT, REPLACE_REGEX, PREPEND, STRIP, FORM = range(5)
SPLIT_TEXT, SPLIT_REGEX, SPLIT_CLASS, PREFIX_SPACE, METASPACE = range(5)
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
PREPEND_SCHEMES = ("never", "always", "first")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
Step = tuple[int, int, int, int]


class Steps:
    """Collects steps, and the texts, patterns and classes that they name."""

    def __init__(self) -> None:
        self.normalizers: list[Step] = []
        self.splits: list[Step] = []
        self.texts: list[bytes] = []
        self.patterns: list[list[int]] = []
        self.classes = Classes()
        self.to_bytes = False  # whether pieces are bytes in the end

    def add_normalizer(self, step: Mapping[str, Any] | None) -> None:
        if step is None:
            return
        kind = step["type"]
        if kind == "Sequence":
            for one in step["normalizers"]:
                self.add_normalizer(one)
        elif kind in FORMS:
            self.normalizers.append((FORM, FORMS.index(kind), 0, 0))
        elif kind == "Replace":
            what, number = self._pattern(step["pattern"])
            action = REPLACE_TEXT if what == SPLIT_TEXT else REPLACE_REGEX
            self.normalizers.append((action, number, self._text(step["content"]), 0))
        elif kind == "Prepend":
            self.normalizers.append((PREPEND, self._text(step["prepend"]), 0, 0))
        elif kind == "Strip":
            sides = int(step["strip_left"]), int(step["strip_right"])
            self.normalizers.append((STRIP, *sides, 0))
        else:
            raise NotCompiled(f"the normaliser {kind}")

    def add_pre_tokenizer(self, step: Mapping[str, Any] | None) -> None:
        if step is None:
            return
        kind = step["type"]
        if self.to_bytes and kind != "Sequence":
            raise NotCompiled(f"the pre-tokeniser {kind} after ByteLevel")
        if kind == "Sequence":
            for one in step["pretokenizers"]:
                self.add_pre_tokenizer(one)
        elif kind == "Split":
            what, number = self._pattern(step["pattern"])
            behavior = BEHAVIORS.index(step["behavior"])
            self.splits.append((what, number, behavior, int(step["invert"])))
        elif kind == "ByteLevel":
            if step.get("add_prefix_space", True):
                self.splits.append((PREFIX_SPACE, 0, 0, 0))
            if step.get("use_regex", True):
                self.splits.append((SPLIT_REGEX, self._regex(GPT2), BEHAVIORS.index("Isolated"), 0))
            self.to_bytes = True
        elif kind == "Digits":
            each = "Isolated" if step["individual_digits"] else "Contiguous"
            self._split_class(CharacterClass.category("N"), each)
        elif kind == "Punctuation":
            punctuation = CharacterClass.category("P")
            punctuation.ascii |= set(b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
            self._split_class(punctuation, step["behavior"])
        elif kind == "WhitespaceSplit":
            self._split_class(CharacterClass.space(), "Removed")
        elif kind == "Whitespace":
            number = self._regex(r"\w+|[^\w\s]+")
            self.splits.append((SPLIT_REGEX, number, BEHAVIORS.index("Removed"), 1))
        elif kind == "Metaspace":
            scheme = PREPEND_SCHEMES.index(step.get("prepend_scheme", "always"))
            number = self._text(step["replacement"])
            self.splits.append((METASPACE, number, scheme, int(step.get("split", True))))
        else:
            raise NotCompiled(f"the pre-tokeniser {kind}")

    def _split_class(self, members: CharacterClass, behavior: str) -> None:
        number = self.classes.number(members)
        self.splits.append((SPLIT_CLASS, number, BEHAVIORS.index(behavior), 0))

    def _pattern(self, pattern: Mapping[str, str]) -> tuple[int, int]:
        if "String" in pattern:
            if not pattern["String"]:
                raise NotCompiled("a pattern that is empty")
            return SPLIT_TEXT, self._text(pattern["String"])
        return SPLIT_REGEX, self._regex(pattern["Regex"])

    def _regex(self, pattern: str) -> int:
        self.patterns.append(compile_regex(pattern, self.classes))
        return len(self.patterns) - 1

    def _text(self, text: str) -> int:
        self.texts.append(text.encode())
        return len(self.texts) - 1
