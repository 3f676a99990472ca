"""Sentences of a text as recordings with transcripts, spoken by flite's voices.

    apt install flite
    python benchmarks/speak_sentences.py wiki.test.raw FOLDER --count 60

For benchmarks/speech_recipes.py: what a recipe costs is a few words of a thousand, which takes more
words than free recordings with transcripts have. The sentences have no names and no digits, so
that there is one way to write them. Voices take turns, and a recording has some 60 words, which is
what they say in half a minute.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

VOICES = ("slt", "rms", "awb", "kal16")
WORDS = range(8, 25)
TOGETHER = 60  # words of a recording


def sentences(text: str) -> Iterator[str]:
    """Those of plain words; WikiText's marks stand apart, and its lines hold paragraphs."""
    for found in re.split(r"(?<=[.?!])\s+", " ".join(text.split())):
        said = re.sub(r"\s+([,.;])", r"\1", found)
        plain = re.fullmatch(r"[A-Z][a-z]*((,|;)? [a-z]+)+\.", said)
        if plain and len(said.split()) in WORDS:
            yield said


def together(said: Iterable[str]) -> Iterator[str]:
    part = ""
    for sentence in said:
        part = f"{part} {sentence}".strip()
        if len(part.split()) >= TOGETHER:
            yield part
            part = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--flite", default="flite", help="the command")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    chosen = dict.fromkeys(sentences(given.text.read_text(encoding="utf-8")))
    texts = itertools.islice(together(chosen), given.count)
    pairs = zip(texts, itertools.cycle(VOICES), strict=False)
    words = 0
    for number, (said, voice) in enumerate(pairs):
        file = given.folder / f"{number:04}-{voice}.wav"
        command = [given.flite, "-voice", voice, "-t", said, "-o", str(file)]
        subprocess.run(command, check=True, timeout=60)
        file.with_suffix(".txt").write_text(said + "\n")
        words += len(said.split())
    print(f"{len(list(given.folder.glob('*.wav')))} recordings, {words} words")


if __name__ == "__main__":
    main()
