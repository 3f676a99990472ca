"""How much of what was said is written down: word and character error rates."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satchel.errors import InputError
from satchel.eval.texts import BYTE_ORDER_MARK, read_text
from satchel.progress import Progress
from satchel.remarks import Remark
from satchel.runtime.program import Program
from satchel.speech.audio import open_sound
from satchel.speech.normalize import normalize
from satchel.speech.transcriber import SpeechOptions, Transcriber

SUFFIXES = {".wav", ".flac", ".ogg", ".mp3", ".opus", ".aiff", ".aif", ".au", ".caf", ".w64"}


def edits(wanted: Sequence[Any], found: Sequence[Any]) -> int:
    """The fewest insertions, deletions and replacements between two lists.

    >>> edits("kitten", "sitting")
    3
    """
    row = list(range(len(found) + 1))
    for at, one in enumerate(wanted, start=1):
        above, row[0] = row[0], at
        for number, other in enumerate(found, start=1):
            above, row[number] = (
                row[number],
                min(above + (one != other), row[number] + 1, row[number - 1] + 1),
            )
    return row[-1]


def recordings(folder: Path, limit: int | None = None) -> list[tuple[Path, str]]:
    """The sound files of a folder that have their transcript beside them, as NAME.txt."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", "Give one with NAME.wav and NAME.txt.")
    found = []
    for path in sorted(folder.rglob("*")):
        text = path.with_suffix(".txt")
        if path.suffix.lower() in SUFFIXES and text.is_file():
            found.append((path, read_text(text).removeprefix(BYTE_ORDER_MARK).strip()))
    if not found:
        raise InputError(
            f"{folder} has no recordings with transcripts", "Put NAME.txt beside each NAME.wav."
        )
    return found[:limit]


def evaluate_speech(
    program: Program,
    folder: Path,
    options: SpeechOptions,
    *,
    limit: int | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The document of ``satchel eval --speech --json``."""
    given = recordings(folder, limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)  # it is said when the recording's turn comes
        for path, _ in given:  # before the work, which may take hours
            open_sound(path)
    transcriber = Transcriber(program, threads, options)
    files, totals = [], dict.fromkeys(("word_edits", "words", "character_edits", "characters"), 0)
    heard, started = 0.0, time.perf_counter()
    for number, (path, text) in enumerate(given):
        if progress:
            progress("Listening, recordings", number, len(given))
        said = transcriber.transcribe(path)
        wanted, found = (normalize(each, said.language) for each in (text, said.text))
        counts = {
            "word_edits": edits(wanted.split(), found.split()),
            "words": len(wanted.split()),
            "character_edits": edits(wanted, found),
            "characters": len(wanted),
        }
        totals = {name: totals[name] + count for name, count in counts.items()}
        heard += said.seconds
        files.append({"audio": str(path), "language": said.language, "text": said.text, **counts})
    seconds = time.perf_counter() - started
    if progress:
        progress("Listening, recordings", len(given), len(given))
    return {
        "program": str(program.path),
        "checksum": program.checksum,
        "recipe": program.about.recipe_description,
        "folder": str(folder),
        "wer": totals["word_edits"] / max(1, totals["words"]),
        "cer": totals["character_edits"] / max(1, totals["characters"]),
        **totals,
        "files": files,
        "audio_seconds": heard,
        "seconds": seconds,
    }
