"""Sound as Whisper takes it: the logarithm of its mel spectrum, 100 frames a second."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from satchel import _native

RATE = 16_000  # samples a second
FRAME, STEP = 400, 160  # samples of a frame, and from one to the next
EDGE = FRAME // 2  # a frame's middle is where it stands
WINDOW_SECONDS = 30

Sound = NDArray[np.float32]


@cache
def mel_filters(mels: int) -> NDArray[np.float32]:
    """Triangles of equal area on Slaney's mel scale, [mels, 201].

    >>> mel_filters(80).shape
    (80, 201)
    """
    # The scale is linear up to 1 kHz and logarithmic above.
    step, corner = 200 / 3, 1000.0
    growth = np.log(6.4) / 27

    def to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
        above = corner * np.exp(growth * (mel - corner / step))
        return np.where(mel < corner / step, mel * step, above)

    highest = corner / step + np.log(RATE / 2 / corner) / growth
    edges = to_hertz(np.linspace(0, highest, mels + 2))
    frequencies = np.linspace(0, RATE / 2, FRAME // 2 + 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    filters = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return np.ascontiguousarray(filters, np.float32)


def framed_log_mel(samples: Sound, mels: int) -> NDArray[np.float32]:
    """log10 of the mel spectrum of every whole frame in the samples, [frames, mels]."""
    return _native.log_mel(np.ascontiguousarray(samples, np.float32), mel_filters(mels))


def mirrored(sound: Sound) -> Sound:
    """With half a frame before and behind, in which the sound goes backwards."""
    return np.pad(sound, EDGE, mode="reflect" if len(sound) > EDGE else "symmetric")


def scaled(log_mel: NDArray[np.float32], loudest: float) -> NDArray[np.float32]:
    """As the model was trained with: 80 dB below the loudest, and around zero."""
    floor = np.float32(loudest - 8)
    return (np.maximum(log_mel, floor) + np.float32(4)) / np.float32(4)  # type: ignore[no-any-return]


def log_mel_spectrogram(sound: Sound, mels: int = 80) -> NDArray[np.float32]:
    """The whole spectrogram of a sound at 16 kHz, [frames, mels].

    >>> log_mel_spectrogram(np.zeros(16000, np.float32)).shape
    (100, 80)
    """
    frames = framed_log_mel(mirrored(sound), mels)[: len(sound) // STEP]
    return scaled(frames, float(frames.max())) if len(frames) else frames
