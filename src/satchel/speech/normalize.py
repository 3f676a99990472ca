"""Texts as Whisper's authors compare them: without case, marks, fillers, ways to write numbers."""

from __future__ import annotations

import importlib.util
import json
import re
import unicodedata
from functools import cache
from pathlib import Path

from satchel.speech.numbers import digits

_BRACKETS = re.compile(r"[<\[][^>\]]*[>\]]|\(([^)]+?)\)")
_FILLERS = re.compile(r"\b(hmm|mm|mhm|mmm|uh|um)\b")
# Letters that decomposition leaves whole.
_LETTERS = {"œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "AE", "ß": "ss", "ẞ": "SS"}
_LETTERS |= {"đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "th", "ł": "l", "Ł": "L"}
_SPOKEN = (
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b", "can not"),
    (r"\blet's\b", "let us"),
    (r"\bain't\b", "aint"),
    (r"\by'all\b", "you all"),
    (r"\bwanna\b", "want to"),
    (r"\bgotta\b", "got to"),
    (r"\bgonna\b", "going to"),
    (r"\bi'ma\b", "i am going to"),
    (r"\bimma\b", "i am going to"),
    (r"\bwoulda\b", "would have"),
    (r"\bcoulda\b", "could have"),
    (r"\bshoulda\b", "should have"),
    (r"\bma'am\b", "madam"),
    (r"\bmr\b", "mister "),
    (r"\bmrs\b", "missus "),
    (r"\bst\b", "saint "),
    (r"\bdr\b", "doctor "),
    (r"\bprof\b", "professor "),
    (r"\bcapt\b", "captain "),
    (r"\bgov\b", "governor "),
    (r"\bald\b", "alderman "),
    (r"\bgen\b", "general "),
    (r"\bsen\b", "senator "),
    (r"\brep\b", "representative "),
    (r"\bpres\b", "president "),
    (r"\brev\b", "reverend "),
    (r"\bhon\b", "honorable "),
    (r"\basst\b", "assistant "),
    (r"\bassoc\b", "associate "),
    (r"\blt\b", "lieutenant "),
    (r"\bcol\b", "colonel "),
    (r"\bjr\b", "junior "),
    (r"\bsr\b", "senior "),
    (r"\besq\b", "esquire "),
    (r"'d been\b", " had been"),
    (r"'s been\b", " has been"),
    (r"'d gone\b", " had gone"),
    (r"'s gone\b", " has gone"),
    (r"'d done\b", " had done"),
    (r"'s got\b", " has got"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'s\b", " is"),
    (r"'d\b", " would"),
    (r"'ll\b", " will"),
    (r"'t\b", " not"),
    (r"'ve\b", " have"),
    (r"'m\b", " am"),
)


def without_marks(text: str, keep: str = "", diacritics: bool = False) -> str:
    """Letters and digits; marks become spaces, and accents go unless ``diacritics`` stay."""
    out = []
    for char in unicodedata.normalize("NFKC" if diacritics else "NFKD", text):
        kind = unicodedata.category(char)
        if char in keep:
            out.append(char)
        elif not diacritics and char in _LETTERS:
            out.append(_LETTERS[char])
        elif not diacritics and kind == "Mn":
            continue
        else:
            out.append(" " if kind[0] in "MSP" else char)
    return "".join(out)


def normalize_basic(text: str) -> str:
    """For all languages but English.

    >>> normalize_basic("Grüß Gott [lacht], Herr Müller!")
    'grüß gott herr müller'
    """
    plain = without_marks(_BRACKETS.sub("", text.lower()), diacritics=True).lower()
    return " ".join(plain.split())


def normalize_english(text: str) -> str:
    """
    >>> normalize_english("Mr. Smith won't pay twenty-five dollars, um, he's 3,000 miles away.")
    'mister smith will not pay $25 he is 3000 miles away'
    """
    text = _FILLERS.sub("", _BRACKETS.sub("", text.lower()))
    text = re.sub(r"\s+'", "'", text)
    for pattern, spoken in _SPOKEN:
        text = re.sub(pattern, spoken, text)
    text = re.sub(r"(\d),(\d)", r"\1\2", text)
    text = re.sub(r"\.([^0-9]|$)", r" \1", text)
    text = digits(without_marks(text, keep=".%$¢€£"))
    text = " ".join(_spellings().get(word, word) for word in text.split())
    text = re.sub(r"[.$¢€£]([^0-9])", r" \1", text)
    text = re.sub(r"([^0-9])%", r"\1 ", text)
    return " ".join(text.split())


@cache
def _spellings() -> dict[str, str]:
    """British spellings as American ones: openai-whisper's list, where that is installed."""
    package = importlib.util.find_spec("whisper")
    for place in (package.submodule_search_locations or ()) if package else ():
        path = Path(place) / "normalizers" / "english.json"
        if path.is_file():
            return {str(a): str(b) for a, b in json.loads(path.read_text("utf-8")).items()}
    return {}


def normalize(text: str, language: str) -> str:
    """As the language asks for."""
    return normalize_english(text) if language == "en" else normalize_basic(text)
