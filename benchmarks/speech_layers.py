"""By which layers a recipe of Whisper's loses: what it makes of texts that fp32 wrote.

    python benchmarks/speech_layers.py tiny.en.pt FOLDER --recipes 8a8w '8a8w,decoder.*.fc2=fp16'

Word errors are few and differ by chance. Here each program reads the text that fp32 wrote of a
recording's first 30 seconds, and the table tells how far its distribution behind each token is from
fp32's (Kullback-Leibler, in thousandths of a nat), how many of its likeliest tokens are others, and
how far the encoder's audio is off. A recipe may have overrides (``PATTERN=RECIPE``, after commas).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import satchel
from satchel.eval.speech import recordings
from satchel.speech.audio import RATE, open_sound, sound_of
from satchel.speech.model import SpeechModel
from satchel.speech.rules import log_softmax
from satchel.speech.spectrogram import Spectrogram
from satchel.speech.whisper import MOST_ROWS

WINDOW = 30 * RATE


def logits(model: SpeechModel, tokens: list[int]) -> np.ndarray:
    """Behind every token of a text."""
    sequence, count = model.open(), len(tokens)
    try:
        parts = [range(a, min(a + MOST_ROWS, count)) for a in range(0, count, MOST_ROWS)]
        return np.concatenate([model.read(sequence, tokens, list(part)) for part in parts])
    finally:
        model.close([sequence])


def program(checkpoint: Path, recipe: str, folder: Path) -> satchel.Transcriber:
    name, *own = recipe.split(",")
    path = folder / "program.satchel"
    overrides = dict(one.split("=") for one in own)
    satchel.export(checkpoint, path, recipe=name, overrides=overrides, overwrite=True)
    return satchel.Transcriber(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--recipes", nargs="+", default=["fp16", "8a8w", "8da4w"])
    given = parser.parse_args()
    found = [path for folder in given.folders for path, _ in recordings(folder)]
    with tempfile.TemporaryDirectory() as folder:
        first = program(given.checkpoint, "fp32", Path(folder))
        model, known = first.model, []
        special = model.vocabulary.special
        for path in found:
            sound = np.concatenate(list(open_sound(path).blocks()))[:WINDOW]
            said = first.transcribe(sound, temperatures=(0.0,))
            words = [token for segment in said.segments for token in segment.tokens]
            tokens = [special.start, *words[: model.context // 2 - 2], special.end]
            mel = Spectrogram(sound_of(sound), model.about.mels).beginning(model.frames)
            model.listen(mel)
            assert model.audio is not None
            known.append((mel, tokens, model.audio.copy(), logits(model, tokens)))
        count = sum(len(tokens) for _, tokens, _, _ in known)
        print(f"{len(known)} recordings, {count} tokens\n")
        print(
            "| recipe | divergence, 1/1000 nat | other tokens | audio off by |\n|---|---|---|---|"
        )
        for recipe in given.recipes:
            model = program(given.checkpoint, recipe, Path(folder)).model
            divergence, other, off = 0.0, 0, []
            for mel, tokens, audio, wanted in known:
                model.listen(mel)
                assert model.audio is not None
                off.append(np.linalg.norm(model.audio - audio) / np.linalg.norm(audio))
                made = logits(model, tokens)
                p, q = log_softmax(wanted), log_softmax(made)
                divergence += float((np.exp(p) * (p - q)).sum())
                other += int((wanted.argmax(-1) != made.argmax(-1)).sum())
            told = f"{1000 * divergence / count:.2f} | {other} | {100 * np.mean(off):.2f} %"
            print(f"| {recipe} | {told} |", flush=True)


if __name__ == "__main__":
    main()
