"""Recordings, resampling and spectrograms; the oracle is transformers' feature extractor."""

from __future__ import annotations

import io
import os
import struct
import threading
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from transformers import WhisperFeatureExtractor

from satchel.errors import InputError
from satchel.remarks import Remark
from satchel.speech.audio import RATE, Resampler, SoundArray, open_sound, sound_of
from satchel.speech.mel import Sound, log_mel_spectrogram, mel_filters
from satchel.speech.microphone import BLOCK, pieces
from satchel.speech.spectrogram import Spectrogram


def voice(seconds: float, seed: int = 0) -> Sound:
    """Tones and noise that come and go."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    tones = sum(np.sin(2 * np.pi * f * t * (1 + 0.1 * np.sin(t))) for f in (150, 620, 2400))
    return (0.1 * tones * (np.sin(3 * t) > 0) + rng.normal(0, 0.01, len(t))).astype(np.float32)


@pytest.mark.parametrize("mels", [80, 128])
def test_spectrogram_is_transformers(mels: int) -> None:
    theirs = WhisperFeatureExtractor(feature_size=mels)
    np.testing.assert_allclose(mel_filters(mels), theirs.mel_filters.T, atol=1e-7)
    silent = np.concatenate([voice(2), np.zeros(RATE, np.float32), voice(2, 1)])
    for sound in (voice(30), silent):
        padded = np.pad(sound, (0, 30 * RATE - len(sound)))
        wanted = theirs(sound, sampling_rate=RATE, return_tensors="np").input_features[0].T
        np.testing.assert_allclose(log_mel_spectrogram(padded, mels), wanted, atol=1e-4)


def test_windows_of_a_long_recording_are_those_of_the_whole() -> None:
    sound = voice(95.3)
    whole = log_mel_spectrogram(np.pad(sound, (0, 30 * RATE)))
    kept = Spectrogram(sound_of(sound), 80)
    streamed = Spectrogram(sound_of(sound), 80, kept_frames=0)
    frames = len(sound) // 160
    assert kept.frames == streamed.frames == frames
    for first in (0, 2100, 2101, 5000, 8000, 300):  # forwards, and back once
        count = min(3000, frames - first)
        for one in (kept, streamed):
            window = one.window(first, count, 3000)
            np.testing.assert_allclose(window[:count], whole[first : first + count], atol=1e-4)
            assert not window[count:].any()
    short = Spectrogram(sound_of(sound[: 5 * RATE]), 80)
    wanted = log_mel_spectrogram(np.pad(sound[: 5 * RATE], (0, 30 * RATE)))[:3000]
    np.testing.assert_allclose(short.beginning(3000), wanted, atol=1e-4)


class Endless:
    """A recording of hours that is never in memory."""

    name, seconds = "hours", None

    def __init__(self, blocks: int) -> None:
        self.count = blocks

    def blocks(self) -> Iterator[Sound]:
        block = voice(30)
        for _ in range(self.count):
            yield block


def test_memory_does_not_grow_with_a_recording() -> None:
    one = Spectrogram(Endless(12), 80, kept_frames=6000)
    assert one.frames == 12 * 3000 and one._kept is None
    held = 0
    for first in range(0, one.frames, 3000):
        one.window(first, 3000, 3000)
        held = max(held, len(one._near))
    assert held < 3 * 3000


@pytest.mark.parametrize("rate", [8000, 11025, 44100, 48000, 192000])
def test_resampling(rate: int) -> None:
    t = np.arange(2 * rate) / rate
    sound = np.sin(2 * np.pi * 440 * t) + 0.5 * np.sin(2 * np.pi * 3000 * t)
    made = np.concatenate(list(SoundArray(sound, rate).blocks()))
    at = np.arange(len(made)) / RATE
    wanted = np.sin(2 * np.pi * 440 * at) + 0.5 * np.sin(2 * np.pi * 3000 * at)
    assert len(made) == 2 * RATE
    np.testing.assert_allclose(made[300:-300], wanted[300:-300], atol=1e-4)
    # The borders of blocks are not heard.
    resampler = Resampler(rate)
    parts = [resampler.push(part) for part in np.split(sound.astype(np.float32), [1, 90, 5000])]
    np.testing.assert_allclose(np.concatenate([*parts, resampler.finish()]), made, atol=1e-6)


@pytest.mark.parametrize(
    ("rate", "subtype", "channels"),
    [(16000, "PCM_16", 1), (192000, "PCM_24", 2), (8000, "ULAW", 1), (44100, "FLOAT", 2)],
)
def test_files_of_all_kinds(tmp_path: Path, rate: int, subtype: str, channels: int) -> None:
    t = np.arange(rate) / rate
    sound = np.stack([0.5 * np.sin(2 * np.pi * 300 * t)] * channels, axis=1)
    soundfile.write(tmp_path / "a.wav", sound, rate, subtype)
    opened = open_sound(tmp_path / "a.wav")
    assert opened.seconds == 1
    made = np.concatenate(list(opened.blocks()))
    wanted = 0.5 * np.sin(2 * np.pi * 300 * np.arange(RATE) / RATE)
    np.testing.assert_allclose(made[300:-300], wanted[300:-300], atol=0.03)


def test_flac_from_an_open_file() -> None:
    file = io.BytesIO()
    soundfile.write(file, voice(1), RATE, format="FLAC")
    made = np.concatenate(list(open_sound(file).blocks()))
    np.testing.assert_allclose(made, voice(1), atol=1e-4)


def test_bad_sound_is_told(tmp_path: Path) -> None:
    wav = tmp_path / "a.wav"
    soundfile.write(wav, voice(2), RATE, "PCM_16")
    data = wav.read_bytes()
    with pytest.raises(InputError, match="does not exist"):
        open_sound(tmp_path / "b.wav")
    with pytest.raises(InputError, match="is a folder"):
        open_sound(tmp_path)
    for content, message in (
        (b"", "is empty"),
        (b"this is no sound at all", "not sound that can be read"),
        (data[:30], "not sound that can be read"),
        (data[:44], "no sound in it"),
        (data[:24] + struct.pack("<I", 0) + data[28:], "no possible number of samples a second"),
    ):
        wav.write_bytes(content)
        with pytest.raises(InputError, match=message):
            list(open_sound(wav).blocks())
    # What is there of a file that is cut off is heard, and it is said.
    wav.write_bytes(data[: len(data) // 2])
    with pytest.warns(Remark, match="is cut off: 50% of it"):
        opened = open_sound(wav)
    assert abs(len(np.concatenate(list(opened.blocks()))) - RATE) < 100
    for wrong, message in (
        (np.zeros((2, 2, 2)), "not an array of samples"),
        (np.array(["a"]), "not an array of samples"),
        (np.zeros(0), "not an array of samples"),
    ):
        with pytest.raises(InputError, match=message):
            sound_of(wrong)
    with pytest.raises(InputError, match="0 samples a second"):
        sound_of(np.zeros(10), 0)
    with pytest.raises(InputError, match="not numbers"):
        list(sound_of(np.full(10, np.nan)).blocks())
    # Of which the model would hear nothing, or what nobody has said.
    with pytest.raises(InputError, match="samples as large as 32,768, and sound is from -1 to 1"):
        list(sound_of(np.array([0.0, -32768.0])).blocks())
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(InputError, match="is a device or a pipe"):
        open_sound(tmp_path / "pipe.wav")


@pytest.mark.parametrize("told", [0, 1000])
@pytest.mark.parametrize("before", [b"", b"LIST" + struct.pack("<I", 5) + b"hello\0"])
def test_a_header_that_was_never_finished(told: int, before: bytes, tmp_path: Path) -> None:
    """A recorder that is killed leaves its header as it was: the samples are there all the same."""
    file = io.BytesIO()
    soundfile.write(file, voice(3), RATE, "PCM_16", format="WAV")
    data = file.getvalue()
    wanted = np.concatenate(list(open_sound(data).blocks()))
    at = data.index(b"data")
    data = data[:at] + before + b"data" + struct.pack("<I", told) + data[at + 8 :]
    path = tmp_path / "killed.wav"
    path.write_bytes(data)
    for source in (path, io.BytesIO(data), data):
        with pytest.warns(Remark, match="has a header that"):
            opened = open_sound(source)
        assert opened.seconds == 3 and len(opened.told) == 1
        np.testing.assert_array_equal(np.concatenate(list(opened.blocks())), wanted)
    # Other chunks behind the samples are no sound.
    path.write_bytes(file.getvalue() + b"LIST" + struct.pack("<I", 6) + b"after\0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_sound(path).seconds == 3


def test_whole_compressed_files_are_not_called_damaged(tmp_path: Path) -> None:
    for kind, subtype in (("MP3", None), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("FLAC", None)):
        for seconds in (0.5, 3.3):
            soundfile.write(tmp_path / "a", voice(seconds), RATE, subtype, format=kind)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                heard = sum(map(len, open_sound(tmp_path / "a").blocks()))
            assert heard == pytest.approx(seconds * RATE, abs=0.1 * RATE)


def test_open_files_of_all_kinds(tmp_path: Path) -> None:
    """Also those that can be read once only."""
    path = tmp_path / "a.wav"
    soundfile.write(path, voice(1), RATE, "FLOAT")
    data = path.read_bytes()
    out, into = os.pipe()
    writing = threading.Thread(target=lambda: (os.write(into, data), os.close(into)))
    writing.start()
    with os.fdopen(out, "rb") as pipe, path.open("rb") as file:
        for source in (data, io.BytesIO(data), file, pipe):
            made = np.concatenate(list(open_sound(source).blocks()))
            np.testing.assert_array_equal(made, voice(1))
    writing.join()
    with pytest.raises(InputError, match="the open file cannot be read"):
        open_sound(file)
    with path.open(errors="replace") as text, pytest.raises(InputError, match="has text in it"):
        open_sound(text)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is empty"):
        open_sound(b"")
    with pytest.raises(InputError, match="cannot be opened .File name too long"):
        open_sound("a" * 5000)
    (tmp_path / "a.raw").write_bytes(bytes(1000))
    with pytest.raises(InputError, match="has no header that tells its rate"):
        open_sound(tmp_path / "a.raw")


def test_arrays_that_are_not_as_they_should_be() -> None:
    sound = voice(0.1)
    np.testing.assert_array_equal(sound_of(sound, 16000.0).samples, sound)
    for wrong, rate, message in (
        (sound, 44100.5, "44100.5 samples a second"),
        (sound, "16000", "'16000' samples a second"),
        (np.stack([sound, sound]), RATE, "has 1,600 channels"),
        ((sound * 32767).astype(int).tolist(), RATE, "whole numbers of 64 bits"),
        ((sound, 16000), RATE, "not an array of samples"),
    ):
        with pytest.raises(InputError, match=message):
            sound_of(wrong, rate)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3", "AIFF", "W64", "AU", "RF64"])
def test_what_is_there_of_a_file_that_is_cut_off_is_heard(tmp_path: Path, kind: str) -> None:
    """Of every kind, also within the first block, and it is said."""
    whole = tmp_path / f"whole.{kind.lower()}"
    soundfile.write(whole, voice(20), RATE, format=kind)
    data = whole.read_bytes()
    assert sum(map(len, open_sound(whole).blocks())) == pytest.approx(20 * RATE, abs=100)
    cut = tmp_path / f"cut.{kind.lower()}"
    cut.write_bytes(data[: len(data) // 2])
    with pytest.warns(Remark, match="is cut off|says that it has 20.0 seconds") as told:
        opened = open_sound(cut)
        heard = sum(map(len, opened.blocks()))
        assert sum(map(len, opened.blocks())) == heard
    assert len(told) == 1, "once, however often it is read"
    assert 8 * RATE < heard < 12 * RATE


def test_a_silent_channel_does_not_matter(tmp_path: Path) -> None:
    """Frames are scaled by the loudest one: half as loud is the same spectrogram."""
    sound = voice(3)
    soundfile.write(tmp_path / "left.wav", np.stack([sound, 0 * sound], 1), RATE, "FLOAT")
    left = Spectrogram(open_sound(tmp_path / "left.wav"), 80).window(0, 300, 3000)
    both = Spectrogram(sound_of(sound), 80).window(0, 300, 3000)
    # log10 of a quarter of the power, in the spectrogram's unit of four powers of ten
    np.testing.assert_allclose(left[:300], both[:300] + np.log10(0.25) / 4, atol=1e-4)


def test_a_header_cannot_ask_for_memory(tmp_path: Path) -> None:
    """1,000 channels of a million samples a second: 30 seconds of it would be 120 GB."""
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 1 << 31, b"WAVE", b"fmt ", 16, 1, 1000,
                       1_000_000, 2_000_000_000, 2000, 16)  # fmt: skip
    file = tmp_path / "many.wav"
    file.write_bytes(head + struct.pack("<4sI", b"data", 1 << 31) + bytes(2000 * 3000))
    with pytest.warns(Remark, match="is cut off"):
        opened = open_sound(file)
    tracemalloc.start()
    assert sum(map(len, opened.blocks())) == 48
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_whole_numbers_are_brought_to_one() -> None:
    made = np.concatenate(list(sound_of(np.array([-32768, 0, 16384], np.int16)).blocks()))
    assert made.tolist() == [-1, 0, 0.5]
    made = np.concatenate(list(sound_of(np.array([0, 128, 192], np.uint8)).blocks()))
    assert made.tolist() == [-1, 0, 0.5]


def test_a_microphone_is_cut_at_pauses() -> None:
    rng = np.random.default_rng(0)

    def spoken(blocks: int, loud: float) -> list[Sound]:
        return [rng.normal(0, loud, BLOCK).astype(np.float32) for _ in range(blocks)]

    sound = [*spoken(20, 0.002), *spoken(15, 0.2), *spoken(12, 0.002), *spoken(9, 0.1)]
    found = [len(piece) // BLOCK for piece in pieces(sound)]
    assert found == [3 + 15 + 7, 3 + 9]
    assert [len(p) for p in pieces(spoken(400, 0.2))][:1] != [400 * BLOCK]
    assert list(pieces(spoken(30, 0.001))) == []


def test_mp3_is_decoded_from_front_to_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its decoder complains on standard error of every place from which it begins anew."""
    path = tmp_path / "talk.mp3"
    soundfile.write(path, voice(7), 16000)
    expected, _ = soundfile.read(path, dtype="float32")
    read = np.concatenate(list(open_sound(path).blocks()))
    np.testing.assert_allclose(read, expected, rtol=0, atol=1e-6)
    assert capfd.readouterr().err == ""
