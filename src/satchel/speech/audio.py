"""Recordings, read a block at a time and brought to what Whisper hears: one channel at 16 kHz."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel.errors import InputError
from satchel.remarks import remark
from satchel.speech.mel import RATE, Sound

BLOCK_SECONDS = 30
LOWEST_RATE, HIGHEST_RATE = 1_000, 1_000_000
_ZERO_CROSSINGS = 24  # of the resampler's filter, on each side
_ADVICE = "Give a WAV, FLAC, OGG or MP3 file, or another that libsndfile reads."


class Recording(Protocol):
    """Sound that can be read from its beginning as often as need be."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def seconds(self) -> float | None:
        """How long it is, as far as that is known beforehand."""

    def blocks(self) -> Iterator[Sound]:
        """All of it, one block after the other."""


@dataclass(frozen=True)
class SoundArray:
    """Samples in memory: [n], or [n, channels]."""

    samples: NDArray[Any]
    rate: int = RATE
    name: str = "the sound"

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate

    def blocks(self) -> Iterator[Sound]:
        resampler, size = Resampler(self.rate), BLOCK_SECONDS * self.rate
        for at in range(0, len(self.samples), size):
            yield resampler.push(one_channel(self.samples[at : at + size], self.name))
        yield resampler.finish()


@dataclass(frozen=True)
class SoundFile:
    """A file that libsndfile reads: a path, or an open binary file."""

    source: Path | BinaryIO
    name: str

    @property
    def seconds(self) -> float | None:
        with self._opened() as file:
            return float(file.frames / file.samplerate)

    def blocks(self) -> Iterator[Sound]:
        with self._opened() as file:
            resampler, read = Resampler(file.samplerate), 0
            while True:
                try:
                    block = file.read(BLOCK_SECONDS * file.samplerate, "float32", always_2d=True)
                except RuntimeError as error:  # soundfile's own error is one
                    told = f"{self.name} is damaged after {read / file.samplerate:.0f} seconds"
                    if not read:
                        raise InputError(f"{told} ({error})", _ADVICE) from None
                    remark(f"{told} ({error}): what lies before is transcribed.")
                    break
                if not len(block):
                    break
                read += len(block)
                yield resampler.push(one_channel(block, self.name))
            yield resampler.finish()

    def _opened(self) -> Any:
        soundfile = _soundfile()
        if not isinstance(self.source, Path):
            self.source.seek(0)
        try:
            file = soundfile.SoundFile(self.source)
        except (RuntimeError, OSError) as error:
            raise InputError(
                f"{self.name} is not sound that can be read ({error})", _ADVICE
            ) from None
        check_rate(file.samplerate, self.name)
        return file


def _soundfile() -> Any:
    try:
        import soundfile
    except ImportError:
        raise InputError(
            "reading sound files needs soundfile", "pip install 'satchel[speech]'."
        ) from None
    except OSError as error:  # without libsndfile
        raise InputError(f"soundfile does not work here ({error})", "Install libsndfile.") from None
    return soundfile


def open_sound(source: str | os.PathLike[str] | BinaryIO, name: str = "") -> SoundFile:
    """A sound file, after a look at its header."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source).expanduser()
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise InputError(f"{path} {what}", "Give a sound file.")
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty", _ADVICE)
        opened = SoundFile(path, name or str(path))
        with path.open("rb") as file:
            _tell_truncation(file, path.stat().st_size, opened.name)
    else:
        opened = SoundFile(source, name or "the file")
    if opened.seconds == 0:
        raise InputError(f"{opened.name} has no sound in it", "Record it again.")
    return opened


def _tell_truncation(file: BinaryIO, size: int, name: str) -> None:
    """libsndfile reads what is there of a WAV file and says nothing of what is missing."""
    start = file.read(8)
    if len(start) == 8 and start[:4] == b"RIFF":
        (rest,) = struct.unpack("<I", start[4:])
        # Programs that write to a pipe do not know the size.
        if size < rest + 8 < 0xFFFFFF00:
            share = size / (rest + 8)
            remark(f"{name} is cut off: {share:.0%} of it is there, and is transcribed.")


def check_rate(rate: int, name: str) -> None:
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise InputError(
            f"{name} has {rate} samples a second",
            f"Give sound with {LOWEST_RATE} to {HIGHEST_RATE} of them.",
        )


def sound_of(samples: ArrayLike, rate: int = RATE, name: str = "the sound") -> SoundArray:
    """Samples in memory as a recording; whole numbers are brought to -1 … 1."""
    array = np.asarray(samples)
    check_rate(rate, name)
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiu" or not array.size:
        raise InputError(
            f"{name} is not an array of samples: {array.dtype} {list(array.shape)}",
            "Give floats or whole numbers [samples] or [samples, channels].",
        )
    if array.dtype.kind != "f":
        limits = np.iinfo(array.dtype)
        middle = 0 if array.dtype.kind == "i" else (int(limits.max) + 1) // 2
        array = (array.astype(np.float32) - middle) / (int(limits.max) + 1 - middle)
    return SoundArray(array, rate, name)


def one_channel(block: NDArray[Any], name: str) -> Sound:
    mono = block.mean(axis=1) if block.ndim == 2 else block
    sound: Sound = np.ascontiguousarray(mono, np.float32)
    if not np.isfinite(sound).all():
        raise InputError(f"{name} has samples that are not numbers", "Record it again.")
    return sound


class Resampler:
    """Brings blocks of any rate to 16 kHz, with a filter that spans their borders."""

    def __init__(self, rate: int) -> None:
        common = int(np.gcd(rate, RATE))
        self.up, self.down = RATE // common, rate // common
        self._skip = 0  # the output's next place, in steps of 1 / up of an input sample
        if rate == RATE:
            return
        # A sinc under a Kaiser window, below both rates' highest frequency: [phase, taps].
        cutoff = min(1.0, self.up / self.down) * 0.97
        self._half = int(np.ceil(_ZERO_CROSSINGS / cutoff))
        taps = np.arange(-self._half + 1, self._half + 1)
        away = taps[None, :] - np.arange(self.up)[:, None] / self.up
        window = np.kaiser(2 * 4096 + 1, 9.0)
        inside = np.clip(away / self._half, -1, 1)
        shape = np.interp(inside, np.linspace(-1, 1, len(window)), window)
        filters = np.sinc(cutoff * away) * cutoff * shape
        self._filters = (filters / filters.sum(axis=1, keepdims=True)).astype(np.float32)
        self._waiting: Sound = np.zeros(self._half - 1, np.float32)

    def push(self, block: Sound) -> Sound:
        """What can be told of the sound so far."""
        if self.up == self.down:
            return block
        self._waiting = np.concatenate([self._waiting, block])
        ready = len(self._waiting) - 2 * self._half + 1  # samples with all their neighbours
        if ready <= 0:
            return np.zeros(0, np.float32)
        count = max(0, -(-(ready * self.up - self._skip) // self.down))
        places = self._skip + self.down * np.arange(count, dtype=np.int64)
        views = np.lib.stride_tricks.sliding_window_view(self._waiting, 2 * self._half)
        out = np.empty(count, np.float32)
        for at in range(0, count, 8192):  # the views are copied here
            part = places[at : at + 8192]
            chosen = views[part // self.up]
            out[at : at + 8192] = np.einsum("nk,nk->n", chosen, self._filters[part % self.up])
        following = self._skip + self.down * count
        used = min(following // self.up, ready)
        self._waiting = self._waiting[used:].copy()
        self._skip = following - used * self.up
        return out

    def finish(self) -> Sound:
        """The rest, as if silence followed."""
        if self.up == self.down:
            return np.zeros(0, np.float32)
        return self.push(np.zeros(self._half, np.float32))
