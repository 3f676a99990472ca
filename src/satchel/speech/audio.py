"""Recordings, read a block at a time and brought to what Whisper hears: one channel at 16 kHz."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from satchel.errors import InputError
from satchel.remarks import remark
from satchel.speech.mel import RATE, Sound
from satchel.speech.sound_header import Finished, cut_off, size_of, unfinished_wav

BLOCK_SECONDS = 30
_PIECES = 4  # of a second, that a file is read by: where it is damaged, one of them is lost
_MOST_VALUES = 1 << 22  # of a piece: a header may name any rate and number of channels
LOWEST_RATE, HIGHEST_RATE = 1_000, 1_000_000
_MOST_CHANNELS = 1024  # as libsndfile has it
_UNCOUNTED_SECONDS = 0.25
LOUDEST = 100.0  # times what sound may be; the model hears nothing, or what was never said, beyond
_ZERO_CROSSINGS = 24  # of the resampler's filter, on each side
_ADVICE = (
    "Give a WAV, FLAC, OGG or MP3 file, or another that libsndfile reads; "
    "ffmpeg -i FILE talk.wav makes one of others."
)
# What libsndfile says of headers in its own words.
_CLEARER = {
    "Internal error : SF_INFO struct incomplete.": "its header has no possible number of samples "
    "a second",
    "File does not exist or is not a regular file (possibly a pipe?).": "it is cut off or damaged",
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
    told: list[str] = field(default_factory=list, compare=False)  # of damage, each once

    @property
    def seconds(self) -> float | None:
        with self._opened() as file:
            return float(file.frames / file.samplerate)

    def tell_damage(self) -> None:
        """Say what the header shows of it."""
        with self._bytes() as file:
            if place := unfinished_wav(file):
                told = int.from_bytes(_at(file, place, 4), "little")
                what = "is not finished" if told == 0 else f"counts {told:,} bytes of samples only"
                self._tell(f"{self.name} has a header that {what}: all that follows is read.")
            elif missing := cut_off(file):
                self._tell(f"{self.name} {missing}")

    def _tell(self, text: str) -> None:
        if text not in self.told:  # long files are read twice
            self.told.append(text)
            remark(text)

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
        # Compressed files do not count to the last sample, and what is cut off was told.
        if not self.told and (damage or said - seconds > _UNCOUNTED_SECONDS):
            text = f"{self.name} says that it has {said:.1f} seconds, and {seconds:.1f} can be read"
            self._tell(f"{text}{damage}: these are transcribed.")

    @contextmanager
    def _bytes(self) -> Iterator[BinaryIO]:
        if isinstance(self.source, Path):
            with self.source.open("rb") as file:
                yield file
        else:
            yield self.source

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with self._bytes() as file:
            place = unfinished_wav(file)
            file.seek(0)
            with self._sound(Finished(file, place) if place else file) as sound:
                yield sound

    def _sound(self, source: Any) -> Any:
        try:
            file = _forward(_soundfile())(source)
        except TypeError:  # its name says that it is nothing but samples
            raise InputError(
                f"{self.name} has no header that tells its rate and channels",
                "Make a WAV file of it: sox -t raw -r RATE -e signed -b 16 -c 1 FILE talk.wav.",
            ) from None
        except (RuntimeError, OSError) as error:
            # Without the name, which stands before it in the error itself.
            reason = getattr(error, "error_string", "") or str(error).rpartition("': ")[2]
            reason = _CLEARER.get(reason, reason)
            raise InputError(
                f"{self.name} is not sound that can be read ({reason})", _ADVICE
            ) from None
        check_rate(file.samplerate, self.name)
        return file


def _forward(soundfile: Any) -> Any:
    """Its class for files that are read from front to back.

    It goes to where it stands after every piece that it has read, unless it cannot go anywhere;
    MP3's decoder then begins anew, which takes time, and complains on standard error.
    """

    class Forward(soundfile.SoundFile):  # type: ignore[misc]
        def seekable(self) -> bool:
            return False

    return Forward


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


def open_sound(source: str | os.PathLike[str] | bytes | BinaryIO, name: str = "") -> SoundFile:
    """A sound file, a file's bytes or an open file, after a look at its header."""
    if isinstance(source, (str, os.PathLike)):
        opened = SoundFile(_existing(Path(source).expanduser(), name), name or str(source))
    else:
        opened = SoundFile(_seekable(source), name or "the file")
    with opened._bytes() as file:
        if size_of(file) == 0:
            raise InputError(f"{opened.name} is empty", _ADVICE)
    if opened.seconds == 0:
        raise InputError(f"{opened.name} has no sound in it", "Record it again.")
    opened.tell_damage()
    return opened


def _existing(path: Path, name: str) -> Path:
    try:
        if path.is_file():
            return path
        there = "is a folder" if path.is_dir() else "is a device or a pipe"
        what = there if path.exists() else "does not exist"
    except OSError as error:  # such as a name that is too long
        what = f"cannot be opened ({error.strerror})"
    raise InputError(f"{name or str(path)[:80]} {what}", "Give a sound file.")


def _seekable(source: bytes | BinaryIO) -> BinaryIO:
    """Something that can be read as often as need be."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    try:
        if source.seekable() and isinstance(source.read(0), bytes):
            return source
        data = source.read()
    except (AttributeError, ValueError, OSError) as error:  # closed, or not what it seems
        raise InputError(f"the open file cannot be read ({error})", "Open it again.") from None
    if not isinstance(data, bytes):
        raise InputError("the open file has text in it", 'Open it with "rb".')
    return io.BytesIO(data)


def _at(file: BinaryIO, place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)


def check_rate(rate: float, name: str) -> int:
    if not (isinstance(rate, (int, float, np.number)) and LOWEST_RATE <= rate <= HIGHEST_RATE):
        raise InputError(
            f"{name} has {rate!r} samples a second",
            f"Give sound with {LOWEST_RATE} to {HIGHEST_RATE} of them.",
        )
    if int(rate) != rate:
        raise InputError(f"{name} has {rate} samples a second", "Give a whole number of them.")
    return int(rate)


def sound_of(samples: ArrayLike, rate: float = RATE, name: str = "the sound") -> SoundArray:
    """Samples in memory as a recording; whole numbers are brought to -1 … 1."""
    rate = check_rate(rate, name)
    try:
        array = np.asarray(samples)
    except ValueError:  # of rows with different lengths
        array = np.zeros(0, object)
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiu" or not array.size:
        raise InputError(
            f"{name} is not an array of samples: {array.dtype} {list(array.shape)}",
            "Give floats or whole numbers [samples] or [samples, channels].",
        )
    if array.ndim == 2 and array.shape[1] > _MOST_CHANNELS:
        raise InputError(
            f"{name} has {array.shape[1]:,} channels", "Give [samples, channels]: transpose it."
        )
    if array.dtype.kind != "f" and array.dtype.itemsize == 8:
        raise InputError(
            f"{name} has whole numbers of 64 bits, which do not say how loud the loudest one is",
            "Convert them, for example with numpy's astype('int16').",
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
