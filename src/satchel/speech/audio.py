"""Recordings, read a block at a time and brought to what Whisper hears: one channel at 16 kHz."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel.errors import InputError
from satchel.remarks import remark
from satchel.speech.mel import RATE, Sound

BLOCK_SECONDS = 30
_PIECES = 4  # of a second, that a file is read by: where it is damaged, one of them is lost
_MOST_VALUES = 1 << 22  # of a piece: a header may name any rate and number of channels
LOWEST_RATE, HIGHEST_RATE = 1_000, 1_000_000
LOUDEST = 100.0  # times what sound may be; the model hears nothing, or what was never said, beyond
_ZERO_CROSSINGS = 24  # of the resampler's filter, on each side
_ADVICE = "Give a WAV, FLAC, OGG or MP3 file, or another that libsndfile reads."
# What libsndfile says of headers in its own words.
_CLEARER = {
    "Internal error : SF_INFO struct incomplete.": "its header has no possible number of samples "
    "a second"
}


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
    _told: list[str] = field(default_factory=list, compare=False)  # long files are read twice

    @property
    def seconds(self) -> float | None:
        with self._opened() as file:
            return float(file.frames / file.samplerate)

    def blocks(self) -> Iterator[Sound]:
        with self._opened() as file:
            resampler = Resampler(file.samplerate)
            for block in in_blocks(self._pieces(file), BLOCK_SECONDS * file.samplerate):
                yield resampler.push(block)
            yield resampler.finish()

    def _pieces(self, file: Any) -> Iterator[Sound]:
        """All that can be read; what is missing or damaged is told."""
        rate, read = file.samplerate, 0
        size = max(1, min(rate // _PIECES, _MOST_VALUES // file.channels))
        damage = ""
        while True:
            try:
                piece = file.read(size, "float32", always_2d=True)
            except RuntimeError as error:  # soundfile's own error is one
                damage = f" ({error})"
                break
            if not len(piece):
                break
            read += len(piece)
            yield one_channel(piece, self.name)
        if not read:
            raise InputError(f"{self.name} is damaged from its beginning on{damage}", _ADVICE)
        seconds, said = read / rate, file.frames / rate
        if damage or said - seconds > 1:  # compressed files do not count to the last sample
            text = f"{self.name} says that it has {said:.1f} seconds, and {seconds:.1f} can be read"
            if not self._told:
                self._told.append(f"{text}{damage}: these are transcribed.")
                remark(self._told[0])

    def _opened(self) -> Any:
        soundfile = _soundfile()
        if not isinstance(self.source, Path):
            self.source.seek(0)
        try:
            file = soundfile.SoundFile(self.source)
        except (RuntimeError, OSError) as error:
            # Without the name, which stands before it in the error itself.
            reason = getattr(error, "error_string", "") or str(error).rpartition("': ")[2]
            reason = _CLEARER.get(reason, reason)
            raise InputError(
                f"{self.name} is not sound that can be read ({reason})", _ADVICE
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
            there = "is a folder" if path.is_dir() else "is a device or a pipe"
            what = there if path.exists() else "does not exist"
            raise InputError(f"{name or path} {what}", "Give a sound file.")
        if path.stat().st_size == 0:
            raise InputError(f"{name or path} is empty", _ADVICE)
        opened = SoundFile(path, name or str(path))
    else:
        opened = SoundFile(source, name or "the file")
    if opened.seconds == 0:
        raise InputError(f"{opened.name} has no sound in it", "Record it again.")
    if isinstance(opened.source, Path):
        with opened.source.open("rb") as file:
            _tell_truncation(file, opened.source.stat().st_size, opened.name)
    return opened


def _tell_truncation(file: BinaryIO, size: int, name: str) -> None:
    """libsndfile reads what is there of a file and says nothing of what is missing."""
    told = told_size(file.read(64))
    if size < told:
        remark(f"{name} is cut off: {size / told:.0%} of it is there, and is transcribed.")
    file.seek(0)
    if file.read(4) == b"OggS":
        file.seek(max(0, size - (1 << 17)))  # a page has at most half of that
        _, _, page = file.read().rpartition(b"OggS")
        if len(page) < 2 or not page[1] & 4:  # the last page of a stream says that it is
            remark(f"{name} is cut off: what is there of it is transcribed.")


def told_size(head: bytes) -> int:
    """The size of a file of plain samples, as its header tells it; 0 if that is not known.

    >>> told_size(b"RIFF" + (36).to_bytes(4, "little") + b"WAVE")
    44
    """
    little, big = (int.from_bytes(head[4:8], order) for order in ("little", "big"))
    if head[:4] == b"RF64" and head[12:16] == b"ds64":
        return 8 + int.from_bytes(head[20:28], "little")
    if head[:4] == b"riff":  # Sony's Wave64
        return int.from_bytes(head[16:24], "little")
    if head[:4] == b".snd":
        told, before = int.from_bytes(head[8:12], "big"), big
    elif head[:4] in (b"RIFF", b"FORM"):
        told, before = little if head[:1] == b"R" else big, 8
    else:
        return 0
    # Programs that write to a pipe do not know the size.
    return told + before if told < 0xFFFFFF00 else 0


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
    loudest = float(np.abs(sound).max(initial=0))
    if loudest > LOUDEST:
        raise InputError(
            f"{name} has samples as large as {loudest:,.6g}, and sound is from -1 to 1",
            "Divide them, or give whole numbers as such.",
        )
    return sound


def in_blocks(pieces: Iterable[Sound], size: int) -> Iterator[Sound]:
    """Pieces joined until there are ``size`` samples or more."""
    waiting: list[Sound] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) >= size:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


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
