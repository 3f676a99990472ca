"""``satchel.Transcriber``: recordings of any length as text, by Whisper's sequential algorithm."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import ArrayLike

from satchel.errors import ConfigError
from satchel.runtime.program import Program
from satchel.speech.audio import Recording, open_sound, sound_of
from satchel.speech.decoding import Heard, Search, decode_window
from satchel.speech.mel import RATE, STEP
from satchel.speech.model import SpeechModel
from satchel.speech.result import Segment, Transcription
from satchel.speech.rules import Rules
from satchel.speech.spectrogram import Spectrogram
from satchel.speech.tokens import TIMESTAMP_SECONDS, language_code
from satchel.speech.words import add_words

FRAME_SECONDS = STEP / RATE
TASKS = ("transcribe", "translate")
MOST_BEAMS = 16

Audio = str | os.PathLike[str] | bytes | BinaryIO | ArrayLike
Progress = Callable[[float, float], None]  # seconds done, seconds in all


@dataclass(frozen=True)
class SpeechOptions:
    """How a recording becomes text; the defaults are openai-whisper's.

    A window is heard again at the next of ``temperatures`` if its text repeats itself
    (``compression_limit``) or is unlikely (``log_probability_limit``). It is skipped as silence if
    that is more likely than ``no_speech_limit`` and the text is unlikely. With
    ``condition_on_previous`` the text so far is what a window begins with. ``beams`` are followed
    at temperature 0, and of ``samples`` at others the best is taken.
    """

    language: str | None = None  # a code or a name; None: what the first window sounds like
    task: str = "transcribe"  # or translate, into English
    words: bool = False  # times of words too
    timestamps: bool = True
    prompt: str = ""  # names and spellings to know, as if they had been said before
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    beams: int = 1
    samples: int = 5
    patience: float = 1.0
    length_penalty: float | None = None
    compression_limit: float | None = 2.4
    log_probability_limit: float | None = -1.0
    no_speech_limit: float | None = 0.6
    condition_on_previous: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.temperatures, (int, float)):  # openai-whisper takes one, too
            object.__setattr__(self, "temperatures", (self.temperatures,))
        self._check_kinds()
        if self.task not in TASKS:
            raise ConfigError(f"there is no task {self.task!r}", f"Tasks: {', '.join(TASKS)}.")
        if not 1 <= self.beams <= MOST_BEAMS or not 1 <= self.samples <= MOST_BEAMS:
            raise ConfigError(f"there may be 1 to {MOST_BEAMS} beams and samples")
        if not round(self.beams * self.patience) >= 1:
            raise ConfigError("beams times patience must be at least 1", "Leave --patience out.")
        if self.length_penalty is not None and not 0 <= self.length_penalty <= 1:
            raise ConfigError("a length penalty is a number from 0 to 1")
        if not self.temperatures or not all(0 <= t <= 2 for t in self.temperatures):
            raise ConfigError("temperatures are numbers from 0 to 2", "For example 0,0.2,0.4.")
        if self.language is not None:
            language_code(self.language)

    def _check_kinds(self) -> None:
        """Python's callers may give anything."""
        limits = (self.compression_limit, self.log_probability_limit, self.no_speech_limit)
        for name, kind, values in (
            ("language", "a text", [self.language or ""]),
            ("task", "a text", [self.task]),
            ("prompt", "a text", [self.prompt or ""]),
            ("temperatures", "numbers", list(self.temperatures)),
            ("patience", "a number", [self.patience]),
            ("length_penalty", "a number", [self.length_penalty or 0]),
            ("a limit", "a number", [0 if limit is None else limit for limit in limits]),
            ("beams", "a whole number", [self.beams]),
            ("samples", "a whole number", [self.samples]),
            ("seed", "a whole number from 0 on", [self.seed]),
        ):
            wanted = str if kind == "a text" else int if "whole" in kind else (int, float)
            for value in values:
                good = isinstance(value, wanted) and not isinstance(value, bool)
                if not good or (isinstance(value, float) and not math.isfinite(value)):
                    raise ConfigError(f"{name} is {value!r}, and must be {kind}")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}, and must be 0 or more")


class Transcriber:
    """A program that hears. Several recordings at a time take turns, window by window.

    >>> transcriber = satchel.Transcriber("tiny.en-cpu-8a8w.satchel")  # doctest: +SKIP
    >>> transcriber.transcribe("talk.flac", words=True).text  # doctest: +SKIP
    ' And so, my fellow Americans, …'
    """

    def __init__(
        self,
        program: str | os.PathLike[str] | Program,
        threads: int = 0,
        options: SpeechOptions | None = None,
    ) -> None:
        loaded = program if isinstance(program, Program) else Program(program)
        self.model = SpeechModel(loaded, threads)
        self.options = _options(options or SpeechOptions())
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        program = self.model.program
        return f"<Transcriber {program.about.name}, {program.path}>"

    def transcribe(
        self,
        audio: Audio | Recording,
        *,
        rate: int = RATE,
        progress: Progress | None = None,
        options: SpeechOptions | None = None,
        **choices: Any,
    ) -> Transcription:
        """All of a recording: a path, a file's bytes, an open file, or samples of ``rate``, [n] or
        [n, channels].

        ``choices`` are fields of :class:`SpeechOptions`.
        """
        stream = self.stream(audio, rate=rate, progress=progress, options=options, **choices)
        segments = list(stream)
        text = "".join(segment.text for segment in segments)
        return Transcription(text, stream.language, stream.seconds, segments)

    def stream(
        self,
        audio: Audio | Recording,
        *,
        rate: int = RATE,
        progress: Progress | None = None,
        options: SpeechOptions | None = None,
        **choices: Any,
    ) -> SegmentStream:
        """The segments one after the other, as windows are heard."""
        base = _options(options or self.options)
        chosen = SpeechOptions(**{**vars(base), **choices}) if choices else base
        return SegmentStream(self, _recording(audio, rate), chosen, progress)

    def detect_language(self, audio: Audio | Recording, rate: int = RATE) -> dict[str, float]:
        """How likely each language is in the first 30 seconds, the likeliest first."""
        spectrogram = Spectrogram(_recording(audio, rate), self.model.about.mels)
        return self._languages(spectrogram)

    def _languages(self, spectrogram: Spectrogram) -> dict[str, float]:
        if not self.model.vocabulary.special.multilingual:
            return {"en": 1.0}
        window = spectrogram.beginning(self.model.frames)
        with self._lock:
            self.model.listen(window)
            found = self.model.languages()
        return dict(sorted(found.items(), key=lambda one: -one[1]))


def _options(given: SpeechOptions) -> SpeechOptions:
    if not isinstance(given, SpeechOptions):
        raise ConfigError(f"options is {given!r}", "Give satchel.SpeechOptions, or its fields.")
    return given


def _recording(audio: Audio | Recording, rate: int) -> Recording:
    if hasattr(audio, "blocks"):
        return cast(Recording, audio)
    if isinstance(audio, (str, os.PathLike, bytes)) or hasattr(audio, "read"):
        return open_sound(cast(str | bytes | BinaryIO, audio))
    return sound_of(cast(ArrayLike, audio), rate)


@dataclass
class SegmentStream:
    """An iterator of segments; ``language`` and ``seconds`` are known from the first one on."""

    transcriber: Transcriber
    recording: Recording
    options: SpeechOptions
    progress: Progress | None = None
    language: str = ""
    seconds: float = 0.0
    _tokens: list[int] = field(default_factory=list)  # of all that was said, and the prompt
    _since: int = 0  # from which of them on windows are told

    def __iter__(self) -> Iterator[Segment]:
        model, options = self.transcriber.model, self.options
        vocabulary = model.vocabulary
        special = vocabulary.special
        self.language = self._given_language()  # before all of a recording is read
        spectrogram = Spectrogram(self.recording, model.about.mels)
        self.seconds = spectrogram.frames * FRAME_SECONDS
        if not self.language:
            self.language = next(iter(self.transcriber._languages(spectrogram)))
        begin = [special.start]
        if special.multilingual:
            task = special.translate if options.task == "translate" else special.transcribe
            begin += [special.language(self.language), task]
        rules = Rules(special, vocabulary.unspoken, vocabulary.blank, options.timestamps)
        self._tokens = vocabulary.encode(" " + options.prompt.strip()) if options.prompt else []
        rng = np.random.default_rng(options.seed)
        seek, last_end = 0, 0.0
        while seek < spectrogram.frames:
            self._tell(seek)
            count = min(model.frames, spectrogram.frames - seek)
            window = spectrogram.window(seek, count, model.frames)
            offset = seek * FRAME_SECONDS
            # The model holds one window: whoever has it keeps it until its text is known.
            with self.transcriber._lock:
                model.listen(window)
                heard = self._hear(begin, rules, rng)
                if self._is_silence(heard):
                    seek += count
                    continue
                segments, moved = divide(heard, special.first_timestamp, offset, count)
                for segment in segments:
                    segment.text = vocabulary.text(segment.tokens)
                if options.words:
                    language = self.language
                    last_end = add_words(model, segments, begin, language, offset, count, last_end)
            ends = [s.words[-1].end for s in segments if s.words]
            if moved.by_timestamp and ends and ends[-1] > offset:
                moved = Move(round(ends[-1] / FRAME_SECONDS) - seek, True)
            seek += max(1, moved.frames)
            for segment in segments:
                if segment.start == segment.end or not segment.text.strip():
                    continue
                self._tokens += segment.tokens
                yield segment
            if not options.condition_on_previous or heard.temperature > 0.5:
                self._since = len(self._tokens)
        self._tell(spectrogram.frames)

    def _tell(self, frame: int) -> None:
        if self.progress is not None:
            self.progress(frame * FRAME_SECONDS, self.seconds)

    def _given_language(self) -> str:
        """What was chosen, if the model can do it; nothing if it is to be heard."""
        special = self.transcriber.model.vocabulary.special
        if self.options.task == "translate" and not special.multilingual:
            raise ConfigError("this model knows English only", "Translate with a multilingual one.")
        if self.options.language is None:
            return ""
        code = language_code(self.options.language)
        if code != "en" and not special.multilingual:
            raise ConfigError(
                f"this model knows English only, and not {code!r}", "Use a multilingual one."
            )
        if code not in special.language_codes:
            raise ConfigError(f"this model does not know the language {code!r}")
        return code

    def _hear(self, begin: list[int], rules: Rules, rng: np.random.Generator) -> Heard:
        """The window's text, at the first temperature that gives a good one."""
        model, options, special = self.transcriber.model, self.options, rules.tokens
        told = self._tokens[self._since :][-(model.context // 2 - 1) :]
        prompt = [special.start_of_previous, *told] if told else []
        start = len(prompt)
        prompt += begin if options.timestamps else [*begin, special.no_timestamps]
        heard: Heard | None = None
        for temperature in options.temperatures:
            search = Search(
                temperature,
                options.beams,
                options.samples,
                options.patience,
                options.length_penalty,
            )
            heard = decode_window(model, prompt, start, rules, search, rng)
            if self._is_good(heard):
                break
        assert heard is not None
        return heard

    def _is_good(self, heard: Heard) -> bool:
        options = self.options
        repeats = options.compression_limit is not None
        repeats = repeats and heard.compression > (options.compression_limit or 0)
        unlikely = self._is_unlikely(heard)
        silent = options.no_speech_limit is not None and heard.no_speech > options.no_speech_limit
        return (silent and unlikely) or not (repeats or unlikely)

    def _is_unlikely(self, heard: Heard) -> bool:
        limit = self.options.log_probability_limit
        return limit is not None and heard.mean_log_probability < limit

    def _is_silence(self, heard: Heard) -> bool:
        limit, likely = self.options.no_speech_limit, self.options.log_probability_limit
        if limit is None or heard.no_speech <= limit:
            return False
        return likely is None or heard.mean_log_probability <= likely


@dataclass(frozen=True)
class Move:
    """How far the next window is, and whether the text itself says where it ends."""

    frames: int
    by_timestamp: bool


def divide(heard: Heard, first: int, offset: float, frames: int) -> tuple[list[Segment], Move]:
    """A window's tokens as segments between timestamps, and how far to go on."""
    tokens = list(heard.tokens)
    times = [token >= first for token in tokens]
    alone = times[-2:] == [False, True]  # nothing is said behind the last timestamp
    cuts = [at for at in range(1, len(tokens)) if times[at - 1] and times[at]]

    def segment(part: list[int], start: float, end: float) -> Segment:
        return Segment(
            offset + start,
            offset + end,
            "",
            part,
            heard.temperature,
            heard.mean_log_probability,
            heard.compression,
            heard.no_speech,
            round(offset / FRAME_SECONDS),
        )

    if not cuts:
        latest = [token - first for token, time in zip(tokens, times, strict=True) if time]
        end = latest[-1] * TIMESTAMP_SECONDS if latest and latest[-1] else frames * FRAME_SECONDS
        return [segment(tokens, 0.0, end)], Move(frames, not alone)
    if alone:
        cuts.append(len(tokens))
    parts = [tokens[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
    segments = [
        segment(part, (part[0] - first) * TIMESTAMP_SECONDS, (part[-1] - first) * TIMESTAMP_SECONDS)
        for part in parts
    ]
    ahead = frames if alone else round((parts[-1][-1] - first) * TIMESTAMP_SECONDS / FRAME_SECONDS)
    return segments, Move(ahead, not alone)
