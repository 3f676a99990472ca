"""Word errors of Whisper by recipe, over recordings and variants of them.

    python benchmarks/speech_recipes.py tiny.en.pt FOLDER [FOLDER…] --recipes fp32 fp16 8a8w 8da4w

A folder has NAME.wav (or .flac, …) with NAME.txt. A variant is the same recording faster or slower
(which changes its pitch too), quieter, or with noise: the words stay, and the sound is another one.
Recordings of other voices would tell more; where there are few, variants show whether a recipe
changes what is heard. With each recipe's errors comes how many words its texts differ in from those
of the first one. ``--as-they-are`` leaves the variants out. A recipe may have overrides:
``8a8w,encoder.*=fp16``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

import satchel
from satchel.eval.speech import edits, evaluate_speech, recordings
from satchel.runtime.program import Program
from satchel.speech.normalize import normalize
from satchel.speech.transcriber import SpeechOptions

RATE = 16_000


def variants(sound: np.ndarray, rate: int) -> Iterator[tuple[str, np.ndarray]]:
    """The recording at 16 kHz as it is, and changed in six ways."""
    sound = resampled(sound, rate / RATE)
    noise = np.random.default_rng(0).normal(size=len(sound))
    power = float(np.sqrt((sound**2).mean()))
    yield "as it is", sound
    for speed in (0.85, 0.93, 1.08, 1.15):
        yield f"{speed} times as fast", resampled(sound, speed)
    yield "a tenth as loud", sound * 0.1
    yield "noise of 20 dB", sound + noise * power * 0.1


def resampled(sound: np.ndarray, step: float) -> np.ndarray:
    at = np.arange(0, len(sound) - 1, step)
    return np.interp(at, np.arange(len(sound)), sound)


def write_variants(folders: list[Path], to: Path, most: int | None) -> int:
    """How many recordings there are before they are varied; ``most`` of the variants."""
    found = [one for folder in folders for one in recordings(folder)]
    for path, text in found:
        sound, rate = soundfile.read(path)
        sound = sound.mean(axis=1) if sound.ndim > 1 else sound
        for name, changed in itertools.islice(variants(sound, rate), most):
            file = to / f"{path.stem}, {name}.wav"
            soundfile.write(file, changed, RATE, subtype="PCM_16")
            file.with_suffix(".txt").write_text(text)
    return len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--recipes", nargs="+", default=["fp32", "fp16", "8a8w", "8da4w"])
    parser.add_argument("--as-they-are", action="store_true", help="no variants")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        varied = Path(folder) / "varied"
        varied.mkdir()
        count = write_variants(given.folders, varied, 1 if given.as_they_are else None)
        print(f"{count} recordings, {len(list(varied.glob('*.wav')))} with their variants")
        first: list[list[str]] | None = None
        for recipe in given.recipes:
            program = Path(folder) / "program.satchel"
            name, *own = recipe.split(",")
            overrides = dict(one.split("=") for one in own)
            satchel.export(given.checkpoint, program, recipe=name, overrides=overrides)
            told = evaluate_speech(Program(program), varied, SpeechOptions())
            texts = [normalize(one["text"], one["language"]).split() for one in told["files"]]
            first = first or texts
            other = sum(edits(a, b) for a, b in zip(first, texts, strict=True))
            row = {"recipe": recipe, "word_edits": told["word_edits"], "words": told["words"]}
            row |= {"words_unlike_the_first": other, "bytes": program.stat().st_size}
            rate = 100 * row["word_edits"] / row["words"]
            line = f"{recipe:8} {row['word_edits']} errors of {row['words']} words ({rate:.2f} %)"
            said = json.dumps(row) if given.json else f"{line}, {other} unlike {given.recipes[0]}'s"
            print(said, flush=True)
            program.unlink()


if __name__ == "__main__":
    main()
