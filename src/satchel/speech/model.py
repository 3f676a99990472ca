"""A program that hears, being run: windows go in, logits come out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from satchel.errors import ConfigError
from satchel.program.about import AboutSpeech
from satchel.runtime.program import Program
from satchel.speech.vocabulary import Vocabulary
from satchel.speech.whisper import ALIGN, DECODE, ENCODE

Array = NDArray[np.float32]


class SpeechModel:
    """One window at a time; any number of texts over it, each a sequence of the instance."""

    def __init__(self, program: Program, threads: int = 0) -> None:
        about = program.about
        if not isinstance(about, AboutSpeech):
            raise ConfigError(
                f"{program.path} is not a program that hears",
                "Export one of Whisper's checkpoints: satchel export tiny.en.pt.",
            )
        self.program, self.about = program, about
        self.vocabulary = Vocabulary.of(program)
        self.instance = program.instance(threads)
        self._encode, self._decode, self._align = (
            self.instance.method(name) for name in (ENCODE, DECODE, ALIGN)
        )
        shapes = {v["name"]: v["shape"] for v in self._encode.info["inputs"]}
        self.frames = int(shapes["mel"][0])  # of a window
        self.context = about.context
        self.audio: Array | None = None  # what the encoder made of the window

    def listen(self, mel: Array) -> None:
        """Hear a window; all steps that follow are over it."""
        (self.audio,) = self._encode.run(mel)

    def open(self) -> int:
        return self.instance.open_sequence()

    def close(self, sequences: Sequence[int]) -> None:
        for sequence in sequences:
            self.instance.close_sequence(sequence)

    def fork(self, sequence: int, rows: int) -> int:
        return self.instance.fork_sequence(sequence, rows)

    def read(self, sequence: int, tokens: Sequence[int], rows: Sequence[int]) -> Array:
        """The logits behind some of the tokens that a text begins with, [rows, vocabulary]."""
        (logits,) = self._decode.run(
            np.array(tokens, np.int32),
            np.arange(len(tokens), dtype=np.int32),
            np.array(rows, np.int32),
            np.full(len(tokens), sequence, np.int32),
        )
        return logits

    def step(self, sequences: Sequence[int], tokens: Sequence[int], position: int) -> Array:
        """One token more of each of the texts."""
        count = len(tokens)
        (logits,) = self._decode.run(
            np.array(tokens, np.int32),
            np.full(count, position, np.int32),
            np.arange(count, dtype=np.int32),
            np.array(sequences, np.int32),
        )
        return logits

    def align(self, tokens: Sequence[int]) -> tuple[Array, Array]:
        """Where tokens listened, [heads, tokens, positions], and their logits."""
        sequence = self.open()
        try:
            count = np.arange(len(tokens), dtype=np.int32)
            made = self._align(
                tokens=np.array(tokens, np.int32),
                position=count,
                rows=count,
                audio=self.audio if self.audio is not None else [],
                sequence=np.full(len(tokens), sequence, np.int32),
            )
        finally:
            self.close([sequence])
        assert isinstance(made, dict)
        logits = made.pop("logits")
        return np.concatenate(list(made.values())), logits

    def languages(self) -> dict[str, float]:
        """How likely each language is in the window, by its code."""
        special = self.vocabulary.special
        sequence = self.open()
        try:
            row = self.read(sequence, [special.start], [0])[0]
        finally:
            self.close([sequence])
        chosen = row[special.language_tokens.start : special.language_tokens.stop]
        powers = np.exp(chosen - chosen.max())
        shares = powers / powers.sum()
        return dict(zip(special.language_codes, map(float, shares), strict=True))
