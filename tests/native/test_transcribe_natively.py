"""satchel-run transcribe beside Python's Transcriber: the same texts, times and languages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import satchel
from native.conftest import Runner
from satchel.speech.formats import written
from speech.test_sound import voice
from support.tiny_whisper import ENGLISH, export_tiny

RunJson = Callable[..., dict[str, Any]]
GREEDY: dict[str, Any] = {"temperatures": (0.0,)}


@pytest.fixture(scope="module")
def hears(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_tiny(tmp_path_factory.mktemp("hears"))[1]


@pytest.fixture(scope="module")
def transcriber(hears: Path) -> satchel.Transcriber:
    return satchel.Transcriber(hears, threads=1)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "long.wav"
    soundfile.write(path, np.concatenate([voice(40), voice(35, 1)]), 16000, "PCM_16")
    return path


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--language", "de"], {"language": "de"}),
        (["--language", "fr", "--task", "translate"], {"language": "fr", "task": "translate"}),
    ],
    ids=["detected", "german", "translated"],
)
def test_texts_are_pythons(
    flags: list[str],
    options: dict[str, str],
    hears: Path,
    long: Path,
    transcriber: satchel.Transcriber,
    run_json: RunJson,
) -> None:
    wanted = transcriber.transcribe(long, **GREEDY, **options)
    (found,) = run_json("transcribe", hears, long, "--threads", 1, *flags)["transcriptions"]
    assert found["language"] == wanted.language and found["seconds"] == wanted.seconds == 75
    assert found["text"] == wanted.text and len(wanted.segments) > 1
    for own, theirs in zip(found["segments"], wanted.segments, strict=True):
        assert own["tokens"] == theirs.tokens
        assert own["start"] == pytest.approx(theirs.start)
        assert own["end"] == pytest.approx(theirs.end)
        assert own["mean_log_probability"] == pytest.approx(theirs.mean_log_probability, rel=1e-3)
        assert own["no_speech"] == pytest.approx(theirs.no_speech, rel=1e-2)


def test_subtitles_are_pythons(
    hears: Path, long: Path, transcriber: satchel.Transcriber, runner: Runner
) -> None:
    wanted = transcriber.transcribe(long, **GREEDY)
    for format in ("txt", "srt", "vtt"):
        done = runner("transcribe", hears, long, "--threads", 1, "--format", format)
        assert done.returncode == 0 and done.stdout == written(wanted, format)


@pytest.mark.parametrize(
    ("rate", "subtype", "channels"),
    [(44100, "PCM_24", 2), (8000, "PCM_U8", 1), (192000, "DOUBLE", 1), (16000, "PCM_32", 3)],
)
def test_recordings_of_all_kinds(
    rate: int,
    subtype: str,
    channels: int,
    tmp_path: Path,
    hears: Path,
    transcriber: satchel.Transcriber,
    run_json: RunJson,
) -> None:
    t = np.arange(2 * rate) / rate
    sound = 0.3 * np.sin(2 * np.pi * 300 * t) * (np.sin(7 * t) > 0)
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack([sound] * channels, axis=1), rate, subtype)
    wanted = transcriber.transcribe(path, language="en", **GREEDY)
    (found,) = run_json("transcribe", hears, path, "--language", "en")["transcriptions"]
    assert found["seconds"] == wanted.seconds == 2
    assert [s["tokens"] for s in found["segments"]] == [s.tokens for s in wanted.segments]


def test_what_is_there_of_a_file_that_is_cut_off_is_heard(
    tmp_path: Path, hears: Path, long: Path, run_json: RunJson
) -> None:
    """Also where a header names more channels and bytes than a machine has memory for."""
    cut = tmp_path / "cut.wav"
    cut.write_bytes(long.read_bytes()[: 44 + 2 * 32000])
    (found,) = run_json("transcribe", hears, cut, "--language", "en")["transcriptions"]
    assert found["seconds"] == 2
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 1 << 31, b"WAVE", b"fmt ", 16, 1, 60_000,
                       16_000, 1_920_000_000, 60_000, 16)  # fmt: skip
    cut.write_bytes(head + struct.pack("<4sI", b"data", 0xFFFFFF00) + bytes(120_000 * 320))
    (found,) = run_json("transcribe", hears, cut, "--language", "en")["transcriptions"]
    assert found["seconds"] == 0.02


def test_what_is_wrong_is_told(
    hears: Path, program: Path, long: Path, tmp_path: Path, runner: Runner
) -> None:
    data = long.read_bytes()
    soundfile.write(tmp_path / "nan.wav", np.full(1000, np.nan), 16000, "FLOAT")
    soundfile.write(tmp_path / "loud.wav", np.full(1000, 32768.0), 16000, "FLOAT")
    bad = {
        "loud": ((tmp_path / "loud.wav").read_bytes(), "samples far beyond -1 to 1"),
        "empty": (b"", "is not a WAV file"),
        "flac": (b"fLaC" + bytes(100), "Python's satchel transcribe reads other kinds"),
        "header": (data[:30], "is not a WAV file|has no sound"),
        "nothing": (data[:44], "too short"),
        "rate": (data[:24] + struct.pack("<I", 0) + data[28:], "0 samples a second"),
        "kind": (data[:20] + struct.pack("<H", 85) + data[22:], "not known here"),
        "nan": ((tmp_path / "nan.wav").read_bytes(), "not numbers"),
    }
    for name, (content, message) in bad.items():
        path = tmp_path / f"{name}.wav"
        path.write_bytes(content)
        done = runner("transcribe", hears, path)
        assert done.returncode == 1, name
        assert any(part in done.stderr for part in message.split("|")), done.stderr
    for arguments, message in (
        ((hears, tmp_path / "none.wav"), "cannot open"),
        ((program, long), "does not write down what is said"),
        ((hears, long, "--language", "xx"), "does not know the language 'xx'"),
    ):
        done = runner("transcribe", *arguments)
        assert done.returncode == 1 and message in done.stderr
    assert runner("transcribe", hears).returncode == 2
    assert runner("transcribe", hears, long, "--format", "mp3").returncode == 2
    _, english = export_tiny(tmp_path / "english", vocab_size=ENGLISH)
    done = runner("transcribe", english, long, "--task", "translate")
    assert done.returncode == 1 and "English only" in done.stderr
