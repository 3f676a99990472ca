"""Whisper in Satchel beside openai-whisper, both in floats: the same segments, times and words.

    pip install --no-deps --target PEERS openai-whisper more-itertools numba llvmlite tiktoken
    python benchmarks/speech_agreement.py tiny.en.pt AUDIO… --peers PEERS [--join] [--words]
        [--beams 5] [--task translate]

For each recording: whether the text is the same letter by letter, in how many of the segments (and
words) the text differs, and how far their times are apart at most. ``--join`` makes one long
recording of all, which the sequential algorithm goes over in windows, with the text so far before
each. Both are greedy, or follow the same number of beams, at temperature 0 alone: at others they
draw other random numbers.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.speech.audio import open_sound
from satchel.speech.normalize import normalize

RATE = 16_000
Piece = tuple[str, float, float]  # a text, and when it begins and ends


def samples(path: str) -> np.ndarray:
    return np.concatenate(list(open_sound(path).blocks()))


def theirs(model: Any, sound: np.ndarray, given: argparse.Namespace) -> tuple[str, list[Piece]]:
    said = model.transcribe(
        sound,
        temperature=0.0,
        fp16=False,
        beam_size=given.beams if given.beams > 1 else None,
        task=given.task,
        word_timestamps=given.words,
        language=given.language,
    )
    parts = said["segments"]
    if given.words:
        words = [word for part in parts for word in part["words"]]
        return said["text"], [(w["word"], w["start"], w["end"]) for w in words]
    return said["text"], [(p["text"], p["start"], p["end"]) for p in parts]


def ours(
    model: satchel.Transcriber, sound: np.ndarray, given: argparse.Namespace
) -> tuple[str, list[Piece]]:
    said = model.transcribe(
        sound,
        temperatures=(0.0,),
        beams=given.beams,
        task=given.task,
        words=given.words,
        language=given.language,
    )
    if given.words:
        words = [word for segment in said.segments for word in segment.words]
        return said.text, [(w.text, w.start, w.end) for w in words]
    return said.text, [(s.text, s.start, s.end) for s in said.segments]


def compare(name: str, a: tuple[str, list[Piece]], b: tuple[str, list[Piece]]) -> bool:
    texts = [[text for text, _, _ in pieces] for _, pieces in (a, b)]
    matched = [
        (a[1][m.a + n], b[1][m.b + n])
        for m in difflib.SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
        for n in range(m.size)
    ]
    apart = [abs(x - y) for one, other in matched for x, y in zip(one[1:], other[1:], strict=True)]
    same = a[0].strip() == b[0].strip()
    if same:
        told = "the same text"
    else:
        words = [normalize(text, "en").split() for text, _ in (a, b)]
        match = difflib.SequenceMatcher(None, *words, autojunk=False)
        equal = sum(block.size for block in match.get_matching_blocks())
        told = f"{equal} of {len(words[0])} words the same"
    most = max(apart, default=0.0)
    late = sum(seconds > 0.021 for seconds in apart)
    print(
        f"{name}: {told}; {len(matched)} of {len(texts[0])} pieces alike, their times at most "
        f"{most:.2f} s apart ({late} of {len(apart)} by more than 0.02 s)",
        flush=True,
    )
    return same


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="openai-whisper's .pt")
    parser.add_argument("audio", nargs="+")
    parser.add_argument("--peers", help="where openai-whisper is installed (pip --target)")
    parser.add_argument("--join", action="store_true", help="all as one long recording")
    parser.add_argument("--words", action="store_true", help="times of words")
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--task", choices=("transcribe", "translate"), default="transcribe")
    parser.add_argument("--language", default="en")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if given.peers:
        sys.path.append(given.peers)
    import torch
    import whisper

    torch.set_num_threads(given.threads)
    sounds = {Path(name).name: samples(name) for name in given.audio}
    if given.join:
        pause = np.zeros(RATE, np.float32)
        parts = [part for sound in sounds.values() for part in (sound, pause)]
        sounds = {f"{len(sounds)} recordings as one": np.concatenate(parts)}
    peer = whisper.load_model(str(given.checkpoint.resolve()), device="cpu").float()
    # Of a model that comes as a file it does not look up the heads that it publishes for its name.
    if heads := whisper._ALIGNMENT_HEADS.get(given.checkpoint.stem):
        peer.set_alignment_heads(heads)
    with tempfile.TemporaryDirectory() as folder:
        path = satchel.export(given.checkpoint, Path(folder) / "fp32.satchel", recipe="fp32")
        own = satchel.Transcriber(path, given.threads)
        same = [
            compare(
                f"{name}, {len(sound) / RATE:.0f} s",
                theirs(peer, sound, given),
                ours(own, sound, given),
            )
            for name, sound in sounds.items()
        ]
    print(f"{sum(same)} of {len(same)} texts are the same, letter by letter")


if __name__ == "__main__":
    main()
