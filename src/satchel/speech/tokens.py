"""Whisper's special tokens, which follow the words of the vocabulary in one order."""

from __future__ import annotations

import re
from dataclasses import dataclass

from satchel.errors import ConfigError

# In the order of their tokens; the last one came with large-v3.
_LANGUAGES = """en english, zh chinese, de german, es spanish, ru russian, ko korean, fr french,
    ja japanese, pt portuguese, tr turkish, pl polish, ca catalan, nl dutch, ar arabic, sv swedish,
    it italian, id indonesian, hi hindi, fi finnish, vi vietnamese, he hebrew, uk ukrainian,
    el greek, ms malay, cs czech, ro romanian, da danish, hu hungarian, ta tamil, no norwegian,
    th thai, ur urdu, hr croatian, bg bulgarian, lt lithuanian, la latin, mi maori, ml malayalam,
    cy welsh, sk slovak, te telugu, fa persian, lv latvian, bn bengali, sr serbian, az azerbaijani,
    sl slovenian, kn kannada, et estonian, mk macedonian, br breton, eu basque, is icelandic,
    hy armenian, ne nepali, mn mongolian, bs bosnian, kk kazakh, sq albanian, sw swahili,
    gl galician, mr marathi, pa punjabi, si sinhala, km khmer, sn shona, yo yoruba, so somali,
    af afrikaans, oc occitan, ka georgian, be belarusian, tg tajik, sd sindhi, gu gujarati,
    am amharic, yi yiddish, lo lao, uz uzbek, fo faroese, ht haitian creole, ps pashto, tk turkmen,
    nn nynorsk, mt maltese, sa sanskrit, lb luxembourgish, my myanmar, bo tibetan, tl tagalog,
    mg malagasy, as assamese, tt tatar, haw hawaiian, ln lingala, ha hausa, ba bashkir,
    jw javanese, su sundanese, yue cantonese"""
LANGUAGES: dict[str, str] = dict(
    one.strip().split(" ", 1) for one in " ".join(_LANGUAGES.split()).split(",")
)
_ALSO = {
    **{"burmese": "my", "valencian": "ca", "flemish": "nl", "haitian": "ht", "castilian": "es"},
    **{"letzeburgesch": "lb", "pushto": "ps", "panjabi": "pa", "moldavian": "ro", "mandarin": "zh"},
    **{"moldovan": "ro", "sinhalese": "si"},
}

TIMESTAMP_SECONDS = 0.02  # between two of their tokens
_TIMESTAMPS = 1501
_ENGLISH_SIZE = 51864  # of the vocabulary of models that know English alone
_TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")


@dataclass(frozen=True)
class Tokens:
    """The numbers of the special tokens of a vocabulary.

    >>> tokens = Tokens.of_vocabulary(51865)
    >>> tokens.start, tokens.language("de"), tokens.no_timestamps, tokens.first_timestamp
    (50258, 50261, 50363, 50364)
    """

    end: int  # of a text; the words are those before it
    languages: int

    @staticmethod
    def of_vocabulary(size: int) -> Tokens:
        languages = 99 + max(0, size - _ENGLISH_SIZE - 1)
        end = size - _TIMESTAMPS - len(_TASKS) - languages - 2
        if end not in (50256, 50257) or languages > len(LANGUAGES):
            raise ConfigError(
                f"Whisper has no vocabulary of {size} tokens",
                "It has 51864 (English), 51865, or 51866 (large-v3).",
            )
        return Tokens(end, languages)

    @property
    def multilingual(self) -> bool:
        return self.end > 50256

    @property
    def start(self) -> int:
        return self.end + 1

    def _task(self, name: str) -> int:
        return self.start + 1 + self.languages + _TASKS.index(name)

    @property
    def translate(self) -> int:
        return self._task("translate")

    @property
    def transcribe(self) -> int:
        return self._task("transcribe")

    @property
    def start_of_lm(self) -> int:
        return self._task("startoflm")

    @property
    def start_of_previous(self) -> int:
        return self._task("startofprev")

    @property
    def no_speech(self) -> int:
        return self._task("nospeech")

    @property
    def no_timestamps(self) -> int:
        return self._task("notimestamps")

    @property
    def first_timestamp(self) -> int:
        return self.no_timestamps + 1

    @property
    def language_codes(self) -> list[str]:
        return list(LANGUAGES)[: self.languages]

    @property
    def language_tokens(self) -> range:
        return range(self.start + 1, self.start + 1 + self.languages)

    def language(self, code: str) -> int:
        return self.start + 1 + self.language_codes.index(code)

    def names(self) -> list[str]:
        """What the special tokens are called, from the end of a text on."""
        marks = ["endoftext", "startoftranscript", *self.language_codes, *_TASKS]
        times = (f"{TIMESTAMP_SECONDS * n:.2f}" for n in range(_TIMESTAMPS))
        return [f"<|{name}|>" for name in (*marks, *times)]


def language_code(name: str) -> str:
    """A code or a name; of a country's way to speak it, the language.

    >>> language_code("German"), language_code("de"), language_code("Castilian")
    ('de', 'de', 'es')
    >>> language_code("pt-BR"), language_code("zh_TW")
    ('pt', 'zh')
    """
    wanted = name.strip().lower()
    language = re.split("[-_]", wanted)[0]
    by_name = {full: code for code, full in LANGUAGES.items()} | _ALSO
    code = language if language in LANGUAGES else by_name.get(wanted)
    if code is None:
        raise ConfigError(
            f"there is no language {name!r}",
            f"Use a code or a name, for example {', '.join(list(LANGUAGES)[:8])} or german.",
        )
    return code
