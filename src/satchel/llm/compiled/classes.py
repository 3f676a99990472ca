"""Classes of characters, as the native regular expressions test them.

Characters below 128 are a bitmap. The others are members by their general category, or by ranges.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field

from satchel.llm.compiled.refusal import NotCompiled

# The order is that of tools/unicode_tables.py.
CATEGORIES = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
)
ASCII = 128
LAST = 0x10FFFF
_ALL = (1 << len(CATEGORIES)) - 1
# Letters in circles and squares, which count as letters of words but are symbols by category.
_LETTERLIKE = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
_MOST_FOLDED = 4096


def _mask(*names: str) -> int:
    return sum(1 << i for i, one in enumerate(CATEGORIES) if one.startswith(names))


@dataclass
class CharacterClass:
    """A set of characters; ``negated`` turns all of it around.

    >>> digits = CharacterClass.category("Nd")
    >>> digits.has_ascii(ord("7")), digits.has_ascii(ord("x"))
    (True, False)
    """

    ascii: set[int] = field(default_factory=set)
    categories: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    negated: bool = False

    @staticmethod
    def category(*names: str, inverse: bool = False) -> CharacterClass:
        """All characters of these categories, each by its letter or both letters."""
        mask = _mask(*names)
        if not mask:
            raise NotCompiled(f"the property \\p{{{'|'.join(names)}}}")
        if inverse:
            mask = _ALL & ~mask
        ascii_ = {c for c in range(ASCII) if mask >> category_of(c) & 1}
        return CharacterClass(ascii_, mask)

    @staticmethod
    def space(inverse: bool = False) -> CharacterClass:
        spaces = {*range(9, 14), 32}
        if not inverse:
            return CharacterClass(spaces, _mask("Z"), [(0x85, 0x85)])
        rest = _ALL & ~_mask("Z", "Cc")
        return CharacterClass(set(range(ASCII)) - spaces, rest, [(0x80, 0x84), (0x86, 0x9F)])

    @staticmethod
    def word(inverse: bool = False) -> CharacterClass:
        found = CharacterClass.category("L", "M", "Nd", "Nl", "Pc")
        found.ranges = list(_LETTERLIKE)
        if inverse:
            raise NotCompiled("\\W inside of a class")
        return found

    @staticmethod
    def of(codes: Iterable[int]) -> CharacterClass:
        made = CharacterClass()
        for code in codes:
            made.add(code, code)
        return made

    def add(self, first: int, last: int) -> None:
        self.ascii |= set(range(first, min(last + 1, ASCII)))
        if last >= ASCII:
            self.ranges.append((max(first, ASCII), last))

    def join(self, other: CharacterClass) -> None:
        if other.negated:
            raise NotCompiled("a negated class inside of a class")
        self.ascii |= other.ascii
        self.categories |= other.categories
        self.ranges += other.ranges

    def folded(self) -> CharacterClass:
        """With all that differs from a member by its case only."""
        if sum(b - a + 1 for a, b in self.ranges) > _MOST_FOLDED:
            raise NotCompiled("a large range under (?i:…)")
        if self.categories:
            cased = self.categories & _mask("Lu", "Ll", "Lt")
            if self.ranges or cased not in (0, _mask("Lu", "Ll", "Lt")):
                raise NotCompiled("letters of one case under (?i:…)")
            return self
        made = CharacterClass(negated=self.negated)
        codes = [*self.ascii, *(c for a, b in self.ranges for c in range(a, b + 1))]
        for code in codes:
            for same in same_but_for_case(code):
                made.add(same, same)
        return made

    def inverse(self) -> CharacterClass:
        return CharacterClass(self.ascii, self.categories, self.ranges, not self.negated)

    def has_ascii(self, code: int) -> bool:
        return (code in self.ascii) != self.negated

    def merged_ranges(self) -> list[tuple[int, int]]:
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self.ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return merged

    def bitmap(self) -> list[int]:
        """The characters below 128, as four numbers of 32 bits."""
        words = [0, 0, 0, 0]
        for code in range(ASCII):
            if self.has_ascii(code):
                words[code // 32] |= 1 << code % 32
        return words


def category_of(code: int) -> int:
    return CATEGORIES.index(unicodedata.category(chr(code)))


def same_but_for_case(code: int) -> set[int]:
    """Characters that a search without case takes for this one.

    >>> sorted(map(chr, same_but_for_case(ord("S"))))
    ['S', 's', 'ſ']
    """
    char = chr(code)
    same = {char, char.lower(), char.upper(), char.casefold(), char.title()}
    if "ſ" in same or "s" in same:
        same |= set("sSſ")
    if "k" in same:
        same.add("\N{KELVIN SIGN}")
    if "å" in same:
        same.add("\N{ANGSTROM SIGN}")
    return {ord(one) for one in same if len(one) == 1}
