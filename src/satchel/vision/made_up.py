"""Images that nobody took, to measure ranges on where there are no photographs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.vision.preprocess import Preprocessing

MADE_UP = 8


def made_up_images(preprocessing: Preprocessing, count: int = MADE_UP) -> list[NDArray[Any]]:
    """Inputs of the model, [1, 3, H, W]: clouds of colour, whose power falls with the frequency as
    it does in photographs, over all levels of brightness.

    >>> made_up_images(Preprocessing(8, (8, 8)), 1)[0].shape
    (1, 3, 8, 8)
    """
    height, width = preprocessing.crop
    rng = np.random.default_rng(0)
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    frequency = np.maximum(np.hypot(down, across), 1 / max(height, width))
    mean = np.array(preprocessing.mean, np.float32)[:, None, None]
    std = np.array(preprocessing.std, np.float32)[:, None, None]
    images = []
    for _ in range(count):
        shape = (3, *frequency.shape)
        waves = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        waves[1:] = 0.8 * waves[:1] + 0.6 * waves[1:]  # colours of a place are alike
        clouds = np.fft.irfft2(waves / frequency, s=(height, width))
        low, high = clouds.min(), clouds.max()
        pixels = (clouds - low) / (high - low)  # 0 to 1, as of an image's bytes
        images.append(((pixels - mean) / std).astype(np.float32)[None])
    return images
