"""Writes native/llm/unicode_data.inl: what the native tokenizer knows about characters.

    pip install unicodedata2==16.0.0 tokenizers==0.23.* && python tools/unicode_tables.py

Version 16 of Unicode is that of the regular expressions in Hugging Face's `tokenizers` 0.23. Its
normal forms are of an older one, and models were trained with them: to these tables, too,
characters that came later have no parts and combine with nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import unicodedata2 as unicode
from tokenizers import normalizers

OUTPUT = Path(__file__).parents[1] / "native" / "llm" / "unicode_data.inl"
VERSION = "16.0.0"
# The order is that of the bits in a compiled class of characters (llm/compiled/classes.py).
CATEGORIES = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
)
LAST = 0x10FFFF
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic, not by tables


def runs(value_of: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Where a value begins that is another than before, and the value."""
    before = None
    for code in range(LAST + 1):
        if (value := value_of(code)) != before:
            yield code, value
            before = value


def came_later(code: int) -> bool:
    """Whether the normal forms of `tokenizers` do not know a character. Those of a character that
    a version of Unicode has never change, so that it is enough to look whether they differ."""
    one = chr(code)
    texts = [one, f"a\u0345{one}", f"a{one}\u0334"]  # alone, and among marks of the other classes
    return any(
        getattr(normalizers, form)().normalize_str(text) != unicode.normalize(form, text)
        for form in ("NFD", "NFKD")
        for text in texts
    )


def combining_class(code: int) -> int:
    return 0 if code in LATER else unicode.combining(chr(code))


def decomposition(code: int) -> tuple[bool, list[int]]:
    """Whether it is only a compatible one, and the characters; one step, not the whole way."""
    parts = [] if code in LATER else unicode.decomposition(chr(code)).split()
    compatible = bool(parts) and parts[0].startswith("<")
    return compatible, [int(part, 16) for part in parts[compatible:]]


def whole(form: str, code: int) -> list[int]:
    return [code] if code in LATER else [ord(c) for c in unicode.normalize(form, chr(code))]


LATER = {c for c in range(LAST + 1) if not 0xD800 <= c < 0xE000 and came_later(c)}


def array(name: str, kind: str, values: Iterable[int]) -> str:
    lines, line = [], " "
    for value in values:
        text = f" {value},"
        if len(line) + len(text) > 99:
            lines.append(line)
            line = " "
        line += text
    return f"constexpr {kind} {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def main() -> None:
    if unicode.unidata_version != VERSION:
        sys.exit(f"This wants Unicode {VERSION}: pip install unicodedata2=={VERSION}")
    codes = [c for c in range(LAST + 1) if not 0xD800 <= c < 0xE000 and c not in HANGUL]
    pairs = []
    second = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # vowels, finals of Hangul
    for code in codes:
        compatible, parts = decomposition(code)
        if not compatible and len(parts) == 2 and whole("NFC", code) == [code]:
            pairs.append((*parts, code))
            second.add(parts[1])
    changed = {c for c in codes if whole("NFC", c) != [c]}

    def value_of(code: int) -> int:
        category = CATEGORIES.index(unicode.category(chr(code)))
        may_change = code in changed or code in second or combining_class(code) != 0
        return category | (32 if may_change else 0)

    blob: list[int] = []
    records: list[int] = []  # code, where its characters are, how many, and the same for NFKD
    for code in codes:
        canonical, compatible = whole("NFD", code), whole("NFKD", code)
        if compatible == [code]:
            continue
        records.append(code)
        for whole_way in (canonical, compatible):
            parts = [] if whole_way == [code] else whole_way
            records.append(len(blob) << 5 | len(parts))
            blob += parts
    text = (
        f"// Made by tools/unicode_tables.py from Unicode {VERSION}. Not to be changed by hand.\n"
        "// clang-format off\n\n"
        "// From this character on: category, and 32 if NFC may change a text that has it.\n"
    )
    text += array("kCategoryRuns", "uint32_t", (c << 6 | v for c, v in runs(value_of)))
    text += "\n// From this character on: the canonical combining class.\n"
    combining = runs(combining_class)
    text += array("kCombiningRuns", "uint32_t", (c << 8 | v for c, v in combining))
    text += "\n// Character, NFD and NFKD of it: where in kDecomposed << 5 | how many, 0: itself.\n"
    text += array("kDecompositions", "uint32_t", records)
    text += array("kDecomposed", "uint32_t", blob)
    text += "\n// First, second and what they make together, in order.\n"
    text += array("kCompositions", "uint32_t", (n for triple in sorted(pairs) for n in triple))
    OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
