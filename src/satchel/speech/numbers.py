"""Numbers in words as digits, as Whisper's normaliser for English writes them."""

from __future__ import annotations

import re
from fractions import Fraction

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen""".split()
_ONES = {word: n for n, word in enumerate(_SMALL)} | {"oh": 0, "o": 0}
_TENS = dict(
    zip(
        "twenty thirty forty fifty sixty seventy eighty ninety".split(),
        range(20, 100, 10),
        strict=True,
    )
)
_LARGE = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_LARGE |= {"trillion": 10**12, "quadrillion": 10**15, "quintillion": 10**18}
_ORDINALS = {"zeroth": 0, "first": 1, "second": 2, "third": 3, "fifth": 5, "twelfth": 12}
_ORDINALS |= {
    word + ("h" if word.endswith("t") else "th"): n
    for word, n in _ONES.items()
    if n > 3 and n not in (5, 12)
}  # which has "nineth": "ninth" stays a word in Whisper's normaliser, too
_PLURALS = {
    **{("sixes" if word == "six" else f"{word}s"): n for word, n in _ONES.items()},
    **{word.replace("y", "ies"): n for word, n in _TENS.items()},
}
_TENTHS = {word.replace("y", "ieth"): n for word, n in _TENS.items()}
_LARGE_ENDS = {f"{word}{end}": (n, end) for word, n in _LARGE.items() for end in ("s", "th")}
_SIGNS = {"minus": "-", "negative": "-", "plus": "+", "positive": "+"}
_MONEY = {"pound": "£", "pounds": "£", "euro": "€", "euros": "€", "dollar": "$", "dollars": "$"}
_MONEY |= {"cent": "¢", "cents": "¢"}
_FIGURES = re.compile(r"[£€$¢]?\d+(?:\.\d+)?")


def _ending(n: int, whole: str) -> str:
    if whole.endswith(("11", "12", "13")):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")


class _Writer:
    """Reads words and writes them again; a number is held until a word does not continue it."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.at = words, 0
        self.out: list[str] = []
        self.value: str | None = None  # as it is written so far
        self.open = False  # whether it is a number that can still grow, and not only its digits
        self.sign = ""

    def flush(self, end: str = "") -> None:
        if self.value is not None:
            self.out.append(f"{self.sign}{self.value}{end}")
        self.value, self.sign, self.open = None, "", False

    @property
    def following(self) -> str:
        return self.words[self.at + 1] if self.at + 1 < len(self.words) else ""

    def hold(self, value: str, open: bool = True) -> None:
        self.value, self.open = value, open

    def run(self) -> str:
        while self.at < len(self.words):
            self.word(self.words[self.at])
            self.at += 1
        self.flush()
        return " ".join(self.out)

    def word(self, word: str) -> None:
        figures = _FIGURES.fullmatch(word)
        if figures:
            self._figures(word)
        elif word in _ONES:
            self._small(_ONES[word])
        elif word in _ORDINALS or word in _PLURALS:
            n = _ORDINALS.get(word, _PLURALS.get(word, 0))
            (self._tens if n >= 20 else self._small)(n)
            self.flush("s" if word in _PLURALS else _ending(n, self.value or ""))
        elif word in _TENS:
            self._tens(_TENS[word])
        elif word in _TENTHS:
            self._tens(_TENTHS[word])
            self.flush("th")
        elif word in _LARGE:
            self._large(_LARGE[word])
        elif word in _LARGE_ENDS:
            n, end = _LARGE_ENDS[word]
            self._large(n)
            self.flush(end)
        else:
            self._other(word)

    def _figures(self, word: str) -> None:
        sign = word[0] if word[0] in "£€$¢" else ""
        plain = word[len(sign) :]
        if self.value is not None and not sign and self.value.endswith("."):
            self.hold(self.value + plain, False)
            return
        self.flush()
        self.sign = sign
        self.hold(plain, "." not in plain)

    def _small(self, n: int) -> None:
        if self.value is None:
            self.hold(str(n))
        elif not self.open or self._previous() in _ONES:
            # Digits one after the other; a ten before a one takes it in.
            if self._previous() in _TENS and n < 10 and self.value.endswith("0"):
                self.hold(self.value[:-1] + str(n), self.open)
            else:
                self.hold(self.value + str(n), False)
        elif n < 10:
            whole = int(self.value)
            self.hold(str(whole + n) if whole % 10 == 0 else self.value + str(n), whole % 10 == 0)
        else:
            whole = int(self.value)
            self.hold(str(whole + n) if whole % 100 == 0 else self.value + str(n), whole % 100 == 0)

    def _tens(self, n: int) -> None:
        if self.value is None:
            self.hold(str(n))
        elif not self.open:
            self.hold(self.value + str(n), False)
        else:
            whole = int(self.value)
            self.hold(str(whole + n) if whole % 100 == 0 else self.value + str(n), whole % 100 == 0)

    def _large(self, n: int) -> None:
        if self.value is None:
            self.hold(str(n))
        elif not self.open:
            scaled = self._scaled(n)
            if scaled is None:
                self.flush()
                self.hold(str(n))
            else:
                self.hold(scaled)
        else:
            whole = int(self.value)
            # What is below a thousand counts the thousands: a million two hundred thousand.
            before, rest = divmod(whole, 1000)
            self.hold(str(before * 1000 + rest * n) if whole else str(n))

    def _scaled(self, n: int) -> str | None:
        """A number with a point times a large one, if that has none any more."""
        try:
            product = Fraction(self.value or "") * n
        except ValueError:
            return None
        return str(product.numerator) if product.denominator == 1 else None

    def _previous(self) -> str:
        return self.words[self.at - 1] if self.at else ""

    def _other(self, word: str) -> None:
        number_follows = self._is_number(self.following)
        if word in _SIGNS and number_follows:
            self.flush()
            self.sign = _SIGNS[word]
        elif word in _MONEY and self.value is not None:
            self.sign = _MONEY[word]
            self.flush()
        elif word in ("percent", "per") and self.value is not None:
            if word == "per" and self.following != "cent":
                self.flush()
                self.out.append(word)
                return
            self.at += word == "per"
            self.flush("%")
        elif word == "and" and self.value is not None and number_follows:
            if self._previous() not in _LARGE:
                self.flush()
                self.out.append(word)
        elif word == "point" and number_follows and self.value is not None:
            self.hold(f"{self.value}.", False)
        elif word in ("double", "triple") and self.following in _ONES:
            repeats = 2 if word == "double" else 3
            self.at += 1
            self.hold((self.value or "") + str(_ONES[self.words[self.at]]) * repeats, False)
        else:
            self.flush()
            self.out.append(word)

    @staticmethod
    def _is_number(word: str) -> bool:
        return word in _ONES or word in _TENS or word in _LARGE or bool(_FIGURES.fullmatch(word))


def digits(text: str) -> str:
    """
    >>> digits("three thousand two hundred and five pounds on the twenty first of may")
    '£3205 on the 21st of may'
    """
    text = re.sub(r"\b(\w+) and a half\b", r"\1 point five", text)
    text = re.sub(r"([a-z])([0-9])", r"\1 \2", text)
    text = re.sub(r"([0-9])([a-z])", r"\1 \2", text)
    text = re.sub(r"([0-9])\s+(st|nd|rd|th|s)\b", r"\1\2", text)
    made = _Writer(text.split()).run()
    # Cents belong to the coins before them; a lone one is a word.
    made = re.sub(r"([€£$])([0-9]+) (?:and )?¢([0-9]{1,2})\b", _with_cents, made)
    made = re.sub(r"[€£$]0\.([0-9]{1,2})\b", r"¢\1", made)
    return re.sub(r"\b1(s?)\b", r"one\1", made)


def _with_cents(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}.{int(found[3]):02d}"
