"""Lines of mixed scripts, code, spaces and odd characters, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

# First and last letters of scripts, and of symbols that tokenizers treat in different ways.
_RANGES = [
    *((0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F)),
    *((0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF)),
    *((0xB80, 0xBFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF), (0x10A0, 0x10FF)),
    *((0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1780, 0x17FF), (0x1800, 0x18AF)),
    *((0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x3040, 0x30FF), (0x3400, 0x34FF), (0x4E00, 0x9FFF)),
    *((0xAC00, 0xD7A3), (0xFB00, 0xFB4F), (0xFE70, 0xFEFF), (0xFF00, 0xFFEF), (0x10300, 0x1034F)),
    *((0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x200FF)),
    *((0x2000, 0x206F), (0x20A0, 0x20CF), (0x2100, 0x218F), (0x2190, 0x22FF), (0x2460, 0x24FF)),
    *((0x300, 0x36F), (0x30, 0x39), (0x660, 0x669), (0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60)),
    *((0xE0100, 0xE01EF), (0x0, 0x1F), (0x80, 0xFF)),
]
_SPACES = [
    " ",
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u3000",
    "\u2028",
]
_SPACES += ["", "", "\x85", "\u200b", " \n ", "\t\t", "        "]
_PIECES = (
    "the The THE and don't DON'T I'll we've they'RE it's IT'S 'sup o'clock 'ſ Kelvin's naïve café "
    "cafe\u0301 Å A\u030a e\u0323\u0301 1 12 123 1234 12345 3.14159 1,000,000 x=1 a_b camelCase "
    "HTTPServer iPhone15 foo.bar() print('hi') <b>x</b> // /* */ #! == != ->> ... … — “quoted” "
    "user@example.org https://example.org/a?b=c&d=%20 😀 👍🏽 👩‍👩‍👧‍👦 🇫🇷 ▁ ▁the ▁▁ <0x0A> "
    "<s> </s> <unk> <|endoftext|> <|im_start|> <bos> \U0010ffff \ufeff ﬁ １２ ½ ² Ⅷ ①"
).split(" ")


def mixed_lines(count: int, seed: int = 0, names: Iterable[str] = ()) -> Iterator[str]:
    """So many lines; ``names`` of special tokens are scattered among them."""
    chance = random.Random(seed)
    pieces = [*_PIECES, *names]
    for _ in range(count):
        line = []
        for _ in range(chance.randint(1, 14)):
            if chance.random() < 0.45:
                word = chance.choice(pieces)
            else:
                first, last = chance.choice(_RANGES)
                letters = (chr(chance.randint(first, last)) for _ in range(chance.randint(1, 9)))
                word = "".join(letters)
            line += [word, chance.choice(_SPACES)]
        yield "".join(line)
