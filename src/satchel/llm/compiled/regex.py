"""Regular expressions of tokenizers, compiled for the native matcher.

The syntax is Oniguruma's, as far as tokenizers use it: alternatives, groups, ``(?i:…)``, classes,
properties, quantifiers (greedy, lazy, possessive), look-ahead, anchors. What else there is, is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from satchel.llm.compiled.classes import LAST, CharacterClass
from satchel.llm.compiled.refusal import NotCompiled

# The native matcher's instructions (native/llm/regex.h).
MATCH, CHAR, SET, JUMP, SPLIT, REPEAT, LOOK, ANCHOR, ATOMIC, BEHIND = range(10)
GREEDY, POSSESSIVE, LAZY = range(3)
TEXT_BEGIN, TEXT_END, LINE_BEGIN, LINE_END, LAST_LINE_END = range(5)
UNBOUNDED = 0xFFFFFFFF
_MOST_WORDS = 1 << 16

_SIMPLE = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "e": 27}
_ANCHORS = {"A": TEXT_BEGIN, "z": TEXT_END, "Z": LAST_LINE_END}


@dataclass(frozen=True)
class Item:
    """A part of a pattern, compiled; ``single`` if it is one character of a class."""

    words: tuple[int, ...]  # jumps are relative to their own place
    single: int | None = None
    may_be_empty: bool = False


class Classes:
    """The classes of all patterns of a tokenizer, each once."""

    def __init__(self) -> None:
        self.words: list[int] = []  # eight for each: bitmap, categories, negated, ranges
        self.ranges: list[int] = []
        self._known: dict[tuple[int, ...], int] = {}

    def number(self, one: CharacterClass) -> int:
        ranges = [end for pair in one.merged_ranges() for end in pair]
        key = (*one.bitmap(), one.categories, int(one.negated), *ranges)
        if key not in self._known:
            self._known[key] = len(self._known)
            self.words += [*key[:6], len(self.ranges) // 2, len(ranges) // 2]
            self.ranges += ranges
        return self._known[key]


def compile_regex(pattern: str, classes: Classes) -> list[int]:
    """The instructions of a pattern; raises :class:`NotCompiled`."""
    parser = _Parser(pattern, classes)
    item = parser.alternatives()
    if parser.at != len(pattern):
        raise NotCompiled(f"the regular expression {pattern!r}")
    return [*item.words, MATCH]


class _Parser:
    def __init__(self, pattern: str, classes: Classes) -> None:
        self.pattern, self.classes = pattern, classes
        self.at = 0
        self.ignore_case = False

    def refuse(self, what: str) -> NotCompiled:
        return NotCompiled(f"{what} in the regular expression {self.pattern!r}")

    def peek(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def take(self) -> str:
        if self.at >= len(self.pattern):
            raise self.refuse("an early end")
        self.at += 1
        return self.pattern[self.at - 1]

    def takes(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def alternatives(self) -> Item:
        branches = [self.sequence()]
        while self.takes("|"):
            branches.append(self.sequence())
        made = branches[-1]
        for branch in reversed(branches[:-1]):
            made = _either(branch, made)
        if len(made.words) > _MOST_WORDS:
            raise self.refuse("too much")
        return made

    def sequence(self) -> Item:
        words: list[int] = []
        empty, single, count = True, None, 0
        while self.peek() not in ("", "|", ")"):
            item = self.quantified()
            words += item.words
            single, count = item.single, count + 1
            empty = empty and item.may_be_empty
        return Item(tuple(words), single if count == 1 else None, empty)

    def quantified(self) -> Item:
        item = self.atom()
        while bounds := self.bounds():
            least, most = bounds
            mode = GREEDY
            if self.takes("?"):
                mode = LAZY
            elif self.pattern[self.at - 1] != "}" and self.takes("+"):
                mode = POSSESSIVE  # after {n,m} it is a quantifier of its own in Oniguruma
            item = self.repeated(item, least, most, mode)
        return item

    def bounds(self) -> tuple[int, int] | None:
        for sign, found in (("*", (0, UNBOUNDED)), ("+", (1, UNBOUNDED)), ("?", (0, 1))):
            if self.takes(sign):
                return found
        if self.peek() != "{":
            return None
        end = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at + 1 : end].partition(",")
        if end < 0 or not (least + most).isdecimal():
            raise self.refuse("a brace")
        self.at = end + 1
        if not comma:
            return int(least), int(least)
        return int(least or 0), int(most) if most else UNBOUNDED

    def repeated(self, item: Item, least: int, most: int, mode: int) -> Item:
        if most < least or least > 1000 or (most != UNBOUNDED and most > 1000):
            raise self.refuse("a count")
        empty = least == 0 or item.may_be_empty
        if item.single is not None and (mode != LAZY or most == UNBOUNDED):
            return Item((REPEAT, item.single, least, most, mode), None, empty)
        if item.may_be_empty:
            raise self.refuse("a repetition of nothing")
        words = list(item.words) * least
        if most == UNBOUNDED:
            # again: SPLIT body, out; body; JUMP again
            loop = [SPLIT, 3, len(item.words) + 5, *item.words, JUMP, -(len(item.words) + 3)]
            if mode == LAZY:
                loop[1], loop[2] = loop[2], loop[1]
            words += loop
        else:
            rest: list[int] = []
            for _ in range(most - least):
                body = [*item.words, *rest]
                ways = [3, len(body) + 3]
                rest = [SPLIT, *(reversed(ways) if mode == LAZY else ways), *body]
            words += rest
        if mode == POSSESSIVE:
            words = [ATOMIC, len(words) + 3, *words, MATCH]
        if len(words) > _MOST_WORDS:
            raise self.refuse("too much")
        return Item(tuple(words), None, empty)

    def atom(self) -> Item:
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return self.one_of(self.character_class())
        if char == "\\":
            return self.escaped()
        if char == ".":
            return self.one_of(CharacterClass.of([10]).inverse())
        if char in "^$":
            return Item((ANCHOR, LINE_BEGIN if char == "^" else LINE_END), None, True)
        if char in "*+?":
            raise self.refuse("a quantifier of nothing")
        return self.one_of(CharacterClass.of([ord(char)]))

    def one_of(self, members: CharacterClass) -> Item:
        if self.ignore_case:
            members = members.folded()
        codes = [*members.ascii, *(end for pair in members.ranges for end in pair)]
        number = self.classes.number(members)
        if not members.negated and not members.categories and len(set(codes)) == 1:
            return Item((CHAR, codes[0]), number)
        return Item((SET, number), number)

    def group(self) -> Item:
        before = self.ignore_case
        kind = "("
        for start in ("?:", "?i:", "?=", "?!", "?>", "?<!", "?<="):
            if self.takes(start):
                kind = start
        if kind == "(" and self.peek() == "?":
            raise self.refuse("a group (?…)")
        self.ignore_case = before or kind == "?i:"
        item = self.alternatives()
        self.ignore_case = before
        if not self.takes(")"):
            raise self.refuse("an open group")
        if kind in ("?=", "?!"):
            words = (LOOK, int(kind == "?!"), len(item.words) + 4, *item.words, MATCH)
            return Item(words, None, True)
        if kind in ("?<=", "?<!"):
            if item.single is None:
                raise self.refuse("a look behind at more than a character")
            return Item((BEHIND, int(kind == "?<!"), item.single), None, True)
        if kind == "?>":
            return Item((ATOMIC, len(item.words) + 3, *item.words, MATCH), None, item.may_be_empty)
        return item

    def escaped(self) -> Item:
        char = self.peek()
        if char in _ANCHORS:
            self.at += 1
            return Item((ANCHOR, _ANCHORS[char]), None, True)
        if char == "W":
            self.at += 1
            return self.one_of(CharacterClass.word().inverse())
        return self.one_of(self.escape())

    def escape(self) -> CharacterClass:
        """What a backslash stands for, where a character may be."""
        char = self.take()
        if char in "pP":
            return self.property(char == "P")
        if char in "sS":
            return CharacterClass.space(char == "S")
        if char in "dD":
            return CharacterClass.category("Nd", inverse=char == "D")
        if char == "w":
            return CharacterClass.word()
        return CharacterClass.of([self.escaped_code(char)])

    def escaped_code(self, char: str) -> int:
        if char in _SIMPLE:
            return _SIMPLE[char]
        if char in "xu":
            if char == "x" and self.takes("{"):
                end = self.pattern.find("}", self.at)
                digits, self.at = self.pattern[self.at : end], end + 1
            else:
                length = 2 if char == "x" else 4
                digits = self.pattern[self.at : self.at + length]
                self.at += length
            try:
                code = int(digits, 16)
            except ValueError:
                raise self.refuse("an escape") from None
            if code > LAST:
                raise self.refuse("an escape")
            return code
        if char.isalnum():
            raise self.refuse(f"\\{char}")
        return ord(char)

    def property(self, inverse: bool) -> CharacterClass:
        if not self.takes("{"):
            name = self.take()
        else:
            end = self.pattern.find("}", self.at)
            name, self.at = self.pattern[self.at : end], end + 1
        if name.startswith("^"):
            name, inverse = name[1:], not inverse
        return CharacterClass.category(name, inverse=inverse)

    def character_class(self) -> CharacterClass:
        made = CharacterClass()
        negated = self.takes("^")
        first = True
        while first or self.peek() != "]":
            first = False
            if self.peek() == "[" or self.pattern.startswith("&&", self.at):
                raise self.refuse("a class inside of a class")
            members, code = self.class_member()
            if code is not None and self.peek() == "-" and self.pattern[self.at + 1] != "]":
                self.take()
                _, last = self.class_member()
                if last is None or last < code:
                    raise self.refuse("a range")
                made.add(code, last)
            else:
                made.join(members)
        self.take()
        made.negated = negated
        return made

    def class_member(self) -> tuple[CharacterClass, int | None]:
        char = self.take()
        if char != "\\":
            return CharacterClass.of([ord(char)]), ord(char)
        if self.peek() in tuple("pPsSdDwW"):
            return self.escape(), None
        code = self.escaped_code(self.take())
        return CharacterClass.of([code]), code


def _either(first: Item, second: Item) -> Item:
    skip = len(first.words) + 2
    words = (SPLIT, 3, skip + 3, *first.words, JUMP, len(second.words) + 2, *second.words)
    return Item(words, None, first.may_be_empty or second.may_be_empty)
