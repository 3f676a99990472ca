"""Which numbers the scales of 4-bit weights may be: not every chip takes all that we store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_SMALLEST = np.float32(2.0**-17)  # the least of which 8 bits are exact in a 16-bit float


@dataclass(frozen=True)
class ScaleForm:
    """``above_zero``: no scale is negative; ``brain``: and they are numbers of bfloat16 as well as
    of 16-bit floats."""

    above_zero: bool = False
    brain: bool = False

    def nearest(self, scales: Array) -> Array:
        """The scales (float16) next to these.

        >>> ANY.nearest(np.array([-1.001])), BRAIN.nearest(np.array([-1.001]))
        (array([-1.001], dtype=float16), array([1.], dtype=float16))
        """
        if not self.brain:
            plain: Array = (np.abs(scales) if self.above_zero else scales).astype(np.float16)
            return plain
        size = np.abs(scales).astype(np.float32)
        bits = size.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
        numbers = np.where(size == 0, size, np.maximum(rounded.view(np.float32), _SMALLEST))
        halves: Array = numbers.astype(np.float16)
        return halves


ANY = ScaleForm()
ABOVE_ZERO = ScaleForm(above_zero=True)
BRAIN = ScaleForm(above_zero=True, brain=True)
