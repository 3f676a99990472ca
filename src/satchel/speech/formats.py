"""Transcriptions as files: plain text, subtitles, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from satchel.speech.result import Segment, Transcription

FORMATS = ("txt", "srt", "vtt", "json")


def clock(seconds: float, comma: bool = False) -> str:
    """
    >>> clock(3725.5, comma=True)
    '01:02:05,500'
    """
    thousandths = round(seconds * 1000)
    rest, ms = divmod(thousandths, 1000)
    minutes, s = divmod(rest, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{s:02}{',' if comma else '.'}{ms:03}"


def lines_of(segments: Iterable[Segment], format: str) -> Iterator[str]:
    """Text, or subtitles, segment by segment; each piece ends with its line end."""
    if format == "vtt":
        yield "WEBVTT\n\n"
    for number, segment in enumerate(segments, start=1):
        text = segment.text.strip()
        if format == "txt":
            yield f"{text}\n"
            continue
        # An arrow would be taken for a time.
        text = text.replace("-->", "->")
        comma = format == "srt"
        times = f"{clock(segment.start, comma)} --> {clock(segment.end, comma)}"
        yield f"{number}\n{times}\n{text}\n\n" if comma else f"{times}\n{text}\n\n"


def written(transcription: Transcription, format: str) -> str:
    """All of a transcription in one of :data:`FORMATS`."""
    if format == "json":
        return json.dumps(transcription.to_dict(), ensure_ascii=False) + "\n"
    return "".join(lines_of(transcription.segments, format))
