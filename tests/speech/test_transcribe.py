"""satchel.Transcriber and satchel transcribe, on a tiny model that says anything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import satchel
from satchel import _native
from satchel.cli.main import main
from satchel.errors import ConfigError, InputError
from satchel.speech.result import Segment
from satchel.speech.transcriber import SegmentStream
from speech.test_sound import voice
from support.tiny_whisper import ENGLISH, export_tiny, torch_model, write_huggingface

# The tiny model's texts are unlikely and repeat themselves.
ANYTHING = {"log_probability_limit": None, "compression_limit": None, "no_speech_limit": None}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_tiny(tmp_path_factory.mktemp("transcribe"))[1]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "talk.flac", voice(7), 16000)
    return tmp_path / "talk.flac"


def test_a_recording_is_heard_window_by_window(program: Path, recording: Path) -> None:
    transcriber = satchel.Transcriber(program, threads=1)
    told: list[tuple[float, float]] = []
    said = transcriber.transcribe(
        recording, progress=lambda done, all: told.append((done, all)), words=True, **ANYTHING
    )
    assert said.seconds == pytest.approx(7)
    assert told[0] == (0, said.seconds) and told[-1] == (said.seconds, said.seconds)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert said.segments and said.text == "".join(s.text for s in said.segments)
    assert said.language in transcriber.detect_language(recording)
    again = transcriber.transcribe(voice(7), **ANYTHING)
    plain = transcriber.transcribe(recording, **ANYTHING)
    assert [s.tokens for s in plain.segments][:1] == [s.tokens for s in again.segments][:1]


def test_bad_text_is_heard_again_at_higher_temperatures(program: Path, recording: Path) -> None:
    transcriber = satchel.Transcriber(program, threads=1)
    strict = {"temperatures": (0.0, 0.3), "no_speech_limit": None, "samples": 1}
    said = transcriber.transcribe(recording, log_probability_limit=0.0, **strict)
    assert {s.temperature for s in said.segments} == {0.3}
    said = transcriber.transcribe(recording, no_speech_limit=0.0, log_probability_limit=0.0)
    assert said.segments == []  # taken for silence


def test_several_recordings_at_once_are_heard_as_alone(program: Path) -> None:
    transcriber = satchel.Transcriber(program, threads=1)
    sounds = [voice(7, seed) for seed in range(3)]
    alone = [transcriber.transcribe(sound, words=True, **ANYTHING) for sound in sounds]
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(transcriber.transcribe, s, words=True, **ANYTHING) for s in sounds]
        assert [job.result(timeout=60) for job in jobs] == alone
    # One that is left in the middle holds nobody up, in its own thread either.
    streams = [iter(transcriber.stream(sound, words=True, **ANYTHING)) for sound in sounds]
    first = [next(stream) for stream in streams]
    assert [[one, *stream] for one, stream in zip(first, streams, strict=True)] == [
        said.segments for said in alone
    ]


def test_ctrl_c_keeps_what_was_heard(
    program: Path,
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    windows = []

    def pressed(stream: SegmentStream, frame: int) -> None:
        windows.append(frame)
        if len(windows) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(SegmentStream, "_tell", pressed)
    out = tmp_path / "out"
    call = ["transcribe", str(program), str(recording), "--format", "srt", "-o", str(out)]
    assert main([*call, "--threads", "1", "--temperatures", "1"]) == 130
    (kept,) = out.iterdir()
    assert kept.name == "talk.flac.unfinished.srt" and kept.read_text().startswith("1\n00:00:0")
    assert "talk.flac.unfinished.srt has the first 00:00:" in capsys.readouterr().err


def test_ctrl_c_loses_nothing_of_json_either(
    program: Path,
    recording: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    windows: list[int] = []

    def pressed(stream: SegmentStream, frame: int) -> None:
        windows.append(frame)
        if len(windows) == 2:
            raise KeyboardInterrupt

    call = ["transcribe", str(program), str(recording), "--threads", "1", "--temperatures", "1"]
    assert main([*call, "--json"]) == 0
    (whole,) = json.loads(capsys.readouterr().out)["transcriptions"]
    monkeypatch.setattr(SegmentStream, "_tell", pressed)
    for asked in ("--json", "--format=json"):
        windows.clear()
        assert main([*call, asked]) == 130
        document = json.loads(capsys.readouterr().out)
        (part,) = document["transcriptions"] if asked == "--json" else (document,)
        assert part["unfinished"] is True and part["segments"]
        assert part["segments"] == whole["segments"][: len(part["segments"])]


def test_sound_comes_through_pipes_too(
    program: Path, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["transcribe", str(program), "--threads", "1", "--temperatures", "1"]
    assert main([*call, str(recording), "--json"]) == 0
    (expected,) = json.loads(capsys.readouterr().out)["transcriptions"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "satchel", *call, "-", str(pipe), "--json"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        writer = threading.Thread(target=pipe.write_bytes, args=(recording.read_bytes(),))
        writer.start()
        out, _ = process.communicate(recording.read_bytes(), timeout=60)
        writer.join()
    first, second = json.loads(out)["transcriptions"]
    assert (first["audio"], second["audio"]) == ("-", str(pipe))
    assert first["segments"] == second["segments"] == expected["segments"]
    assert main([*call, "-", "-"]) == 2
    assert "standard input can be read once only" in capsys.readouterr().err


def test_a_bad_recording_does_not_stop_the_others(
    program: Path, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.wav"
    soundfile.write(bad, np.full(16000, np.nan), 16000, "FLOAT")
    call = ["transcribe", str(program), str(bad), str(recording), "--threads", "1", "--json"]
    assert main([*call, "--temperatures", "1"]) == 1
    told = capsys.readouterr()
    first, second = json.loads(told.out)["transcriptions"]
    assert "not numbers" in first["error"] and "not numbers" in told.err
    assert second["audio"] == str(recording) and "text" in second
    assert main([*call[:3], "--threads", "1"]) == 1
    assert "not numbers" in capsys.readouterr().err


def test_what_cannot_be_done_is_told(program: Path, recording: Path, tmp_path: Path) -> None:
    transcriber = satchel.Transcriber(program, threads=1)
    with pytest.raises(ConfigError, match="no language 'klingon'"):
        transcriber.transcribe(recording, language="klingon")
    with pytest.raises(ConfigError, match="no task"):
        transcriber.transcribe(recording, task="sing")
    with pytest.raises(InputError, match="too short"):
        transcriber.transcribe(np.zeros(100))
    _, english = export_tiny(tmp_path, vocab_size=ENGLISH)
    only = satchel.Transcriber(english, threads=1)
    assert only.detect_language(recording) == {"en": 1.0}
    with pytest.raises(ConfigError, match="English only"):
        only.transcribe(recording, task="translate")
    with pytest.raises(ConfigError, match="English only"):
        only.transcribe(recording, language="de")


@pytest.mark.parametrize(
    "choices",
    [
        {"temperatures": "0"},
        {"language": 5},
        {"prompt": ["a"]},
        {"patience": float("nan")},
        {"patience": float("inf"), "beams": 2},
        {"beams": 2.5},
        {"beams": True},
        {"seed": -1},
        {"length_penalty": "a"},
        {"compression_limit": "none"},
    ],
)
def test_options_of_a_wrong_kind(choices: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        satchel.SpeechOptions(**choices)


def test_one_temperature_is_all_of_them(program: Path) -> None:
    assert satchel.SpeechOptions(temperatures=0.5).temperatures == (0.5,)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="options is {'beams': 2}"):
        satchel.Transcriber(program, 1, {"beams": 2})  # type: ignore[arg-type]


def test_what_the_model_cannot_do_is_told_before_a_recording_is_read(tmp_path: Path) -> None:
    class Long:
        name, seconds = "hours", None

        def blocks(self) -> Iterator[np.ndarray]:
            raise AssertionError("it was read")

    _, english = export_tiny(tmp_path, vocab_size=ENGLISH)
    for choices in ({"language": "de"}, {"task": "translate"}):
        with pytest.raises(ConfigError, match="English only"):
            satchel.Transcriber(english, 1).transcribe(Long(), **choices)


def test_a_microphone_until_ctrl_c(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was said just before is not lost."""
    opened: list[Any] = []

    class InputStream:
        """Somebody speaks for a second and has not paused when Ctrl-C comes."""

        def __init__(self, rate: int, block: int, device: object, **given: Any) -> None:
            opened.append(device)
            self.keep, self.block = given["callback"], block

        def __enter__(self) -> None:
            for part in np.split(0.3 * np.sin(np.arange(10 * self.block)).astype(np.float32), 10):
                self.keep(part[:, None], self.block, None, None)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

        def __exit__(self, *_: object) -> None: ...

    fake = types.SimpleNamespace(InputStream=InputStream, PortAudioError=OSError)
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    heard: list[float] = []

    def keep(transcriber: Any, sound: Any, **_: Any) -> list[Segment]:
        heard.append(len(sound) / 16000)
        return [Segment(0, 1, " Said.", [], 0, 0, 0, 0)]

    monkeypatch.setattr(satchel.Transcriber, "stream", keep)
    assert main(["transcribe", str(program), "--microphone", "--device", "3"]) == 0
    assert opened == [3] and heard == [1.0]
    assert capsys.readouterr().out == "Said.\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert main(["transcribe", str(program), "a.wav", "--device", "3"]) == 2
    assert "--device names a microphone" in capsys.readouterr().err


def test_the_command(
    program: Path, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transcribe", str(program), str(recording), "--json", "--temperatures", "1"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["transcriptions"]
    assert set(document) == {"audio", "text", "language", "seconds", "segments"}
    out = tmp_path / "subtitles"
    call = ["transcribe", str(program), str(recording), "--format", "vtt", "-o", str(out)]
    assert main([*call, "--language", "german", "--task", "translate", "--threads", "1"]) == 0
    assert (out / "talk.flac.vtt").read_text().startswith("WEBVTT\n\n")
    captured = capsys.readouterr()
    assert "talk.flac: 100%" in captured.err and "talk.flac.vtt" in captured.err
    assert main(["transcribe", str(program)]) == 2
    assert "nothing to listen to" in capsys.readouterr().err
    assert main(["transcribe", str(program), str(tmp_path / "none.wav")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_a_checkpoint_is_exported_on_first_use(
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As satchel export would; it is of the size that reads a text first if it writes texts."""
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("satchel.exporter.usual.TOY", 1000)
    folder = write_huggingface(tmp_path / "whisper", torch_model())
    assert main(["transcribe", str(folder), str(recording), "--temperatures", "0"]) == 0
    assert "for the first time (8a8w" in capsys.readouterr().err
    (made,) = (tmp_path / "cache").rglob("*.satchel")
    exported = satchel.export(folder, tmp_path / "exported.satchel")
    assert made.read_bytes() == exported.read_bytes()


def test_flags_by_the_names_of_openai_whisper(
    program: Path, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["transcribe", str(program), str(recording), "--output_dir", str(tmp_path / "out")]
    call += ["--output_format", "json", "--beam_size", "2", "--best_of", "1", "--threads", "1"]
    call += ["--temperature", "0", "--patience", "1.5", "--length_penalty", "0.5"]
    call += ["--compression_ratio_threshold", "none", "--logprob_threshold", "none"]
    assert main([*call, "--no_speech_threshold", "None", "--initial_prompt", "Hello"]) == 0
    said = satchel.Transcriber(program, threads=1).transcribe(
        recording,
        beams=2,
        samples=1,
        patience=1.5,
        length_penalty=0.5,
        temperatures=(0.0,),
        prompt="Hello",
        **ANYTHING,
    )
    written = json.loads((tmp_path / "out" / "talk.flac.json").read_text())
    assert said.text and written["text"] == said.text
    capsys.readouterr()
    for words, told in (
        (["--word_timestamps", "True"], "for --word-timestamps write --words"),
        (["--logprob_threshold", "inf"], "neither a number nor none"),
        (["--temperatures", "0;1"], "are not temperatures"),
    ):
        with pytest.raises(SystemExit) as left:
            main([*call, *words])
        assert left.value.code == 2 and told in capsys.readouterr().err
    for words, told in (
        (["--beams", "17"], "1 to 16 beams"),
        (["--patience", "0.1"], "at least 1"),
        (["--length_penalty", "2"], "from 0 to 1"),
    ):
        assert main([*call, *words]) == 2 and told in capsys.readouterr().err


def test_what_is_named_is_checked_before_the_work(
    program: Path, recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "texts"
    call = ["transcribe", str(program), str(recording), "--threads", "1", "-o", str(out)]
    assert main(call) == 0
    (out / "talk.flac.txt").write_text("mine")
    file = tmp_path / "file"
    file.write_text("")
    again = tmp_path / "other"
    again.mkdir()
    twin = again / recording.name
    twin.write_bytes(recording.read_bytes())
    for words, said in (
        (call, "talk.flac.txt exists"),
        ([*call[:3], str(tmp_path / "none.wav"), *call[3:]], "none.wav does not exist"),
        ([*call[:-1], str(file)], "is not a folder"),
        ([*call[:-1], str(tmp_path / "no" / "where")], "there is no folder"),
        ([*call[:-1], str(tmp_path / "talk.srt")], "--format srt > "),
        ([*call[:3], str(twin), *call[3:-1], str(again)], "two recordings would become"),
    ):
        capsys.readouterr()
        assert main(words) in (1, 2)
        told = capsys.readouterr().err
        assert said in told and "talk.flac: " not in told, told
    assert (out / "talk.flac.txt").read_text() == "mine"
    assert not (tmp_path / "no").exists() and not (tmp_path / "talk.srt").exists()
    assert main([*call, "--force"]) == 0
    assert (out / "talk.flac.txt").read_text() != "mine"


def test_other_commands_say_what_a_program_that_hears_is_for(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for what in (["hi"], ["--input", "talk.wav"]):
        assert main(["run", str(program), *what]) == 1
        assert "satchel transcribe FILE AUDIO" in capsys.readouterr().err
    runner = Path(_native.__file__).parent / "device" / "bin" / "satchel-run"
    commands = (["run", program, "hi"], ["chat", program])
    for command in commands if sys.platform != "win32" else ():
        done = subprocess.run([runner, *command], capture_output=True, check=False, timeout=60)
        assert done.returncode == 1 and b"transcribe FILE AUDIO" in done.stderr
    if sys.platform != "win32":
        bench = [runner, "bench", program, "--runs", "1", "--json"]
        done = subprocess.run(bench, capture_output=True, check=True, timeout=60)
        assert json.loads(done.stdout)["method"] == "encode"
    assert main(["bench", str(program), "--runs", "1", "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "encode"
    assert main(["inspect", str(program)]) == 0
    assert "None" not in capsys.readouterr().out
