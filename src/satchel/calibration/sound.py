"""What Whisper's layers see of recordings whose words are known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.calibration.layers import ReadRows, Told
from satchel.calibration.watch import InputWatch, SeenInput
from satchel.errors import InputError
from satchel.eval.speech import recordings
from satchel.graph.ir import DType
from satchel.graph.reference import ReferenceInterpreter
from satchel.remarks import remark
from satchel.speech.audio import open_sound
from satchel.speech.mel import RATE, STEP
from satchel.speech.spectrogram import Spectrogram
from satchel.speech.tokens import TIMESTAMP_SECONDS, Tokens
from satchel.speech.vocabulary import Vocabulary
from satchel.speech.whisper import MOST_ROWS, Whisper

Array = NDArray[Any]
DEFAULT_SAMPLES = 32  # recordings: more change little
FRAMES_PER_SECOND = RATE // STEP


@dataclass(frozen=True)
class Spoken:
    """A recording of at most a window, and the tokens of what is said in it, to its end."""

    mel: Array  # [frames, mels]
    words: tuple[int, ...]


@dataclass(frozen=True)
class CalibrationSound:
    """The recordings that a model is run on."""

    source: str
    spoken: tuple[Spoken, ...]
    digest: str

    @property
    def tokens(self) -> int:
        return sum(len(each.words) for each in self.spoken)


def read_recordings(
    source: str, vocabulary: Vocabulary, model: Whisper, samples: int | None = None
) -> CalibrationSound:
    """The first recordings of a folder whose transcripts lie beside them, as NAME.txt.

    What belongs to which window of a long recording is not known, so those are left out.
    """
    special, spoken, long = vocabulary.special, [], 0
    longest = model.frames / FRAMES_PER_SECOND
    for path, text in recordings(Path(source).expanduser()):
        sound = open_sound(path)
        seconds = sound.seconds or 0.0
        words = vocabulary.encode(f" {text}")
        if seconds > longest or len(words) > model.context // 2:
            long += 1
            continue
        mel = Spectrogram(sound, model.mels).window(0, model.frames, model.frames)
        last = special.first_timestamp + round(seconds / TIMESTAMP_SECONDS)
        spoken.append(Spoken(mel, (special.first_timestamp, *words, last, special.end)))
        if len(spoken) == (samples or DEFAULT_SAMPLES):
            break
    if long:
        remark(f"{long} recordings are left out: they do not fit into {longest:g} seconds.")
    if not spoken:
        raise InputError(
            f"{source} has no recording of up to {longest:g} seconds", "Cut them into parts."
        )
    digest = hashlib.sha256()
    for each in spoken:
        digest.update(each.mel.tobytes() + np.array(each.words, np.int32).tobytes())
    return CalibrationSound(source, tuple(spoken), digest.hexdigest())


def heard_inputs(
    model: Whisper,
    read: ReadRows,
    spoken: Sequence[Spoken],
    told: Told = lambda _done, _total: None,
) -> Iterator[SeenInput]:
    """What every linear layer sees while recordings are heard, and their words are written."""
    graphs = encode, decode = model.encode(DType.f32), model.decode(DType.f32)
    special = Tokens.of_vocabulary(model.vocab_size)
    watch = InputWatch(graphs)
    passes = watch.passes()
    done = 0
    for part in passes:
        watch.wanted = part
        interpreter = ReferenceInterpreter(
            lambda weight: read(weight, 0, weight.shape[0]), keeps_weights=False
        )
        for each in spoken:
            told(done, len(spoken) * len(passes))
            watch.begin()
            interpreter.run(encode, {"mel": each.mel}, watch)
            tokens = [special.start]
            if special.multilingual:
                (likely,) = interpreter.run(decode, _inputs(tokens))["logits"]
                language = likely[special.language_tokens.start : special.language_tokens.stop]
                tokens += [special.language_tokens[int(language.argmax())], special.transcribe]
            interpreter.run(decode, _inputs([*tokens, *each.words]), watch)
            done += 1
        yield from watch.finish()
    told(done, done)


def _inputs(tokens: Sequence[int]) -> dict[str, Array]:
    """A step of all tokens of a text; logits of as many as there may be, over all of it."""
    count = len(tokens)
    rows = np.unique(np.linspace(0, count - 1, min(count, MOST_ROWS)).astype(np.int32))
    return {
        "tokens": np.array(tokens, np.int32),
        "position": np.arange(count, dtype=np.int32),
        "rows": rows,
        "sequence": np.zeros(count, np.int32),
    }
