"""What was said: segments and words with their times."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Word:
    """With the space before it, as it is written."""

    text: str
    start: float  # in seconds
    end: float
    probability: float


@dataclass
class Segment:
    """What is said between two times, in seconds."""

    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    mean_log_probability: float
    compression: float
    no_speech: float
    seek: int = 0  # where its window begins, in hundredths of a second
    words: list[Word] = field(default_factory=list)  # if they were asked for

    def to_dict(self) -> dict[str, Any]:
        parts = asdict(self)
        if not self.words:
            del parts["words"]
        return parts


@dataclass(frozen=True)
class Transcription:
    """All of a recording."""

    text: str
    language: str
    seconds: float
    segments: list[Segment]

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "language": self.language,
            "seconds": self.seconds,
            "segments": [segment.to_dict() for segment in self.segments],
        }
