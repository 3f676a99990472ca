"""Which layers are too noisy in 8 bits: the same rule for every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

SHARES = (4, 2, 1)  # of the layers: a quarter, a half, all


def choose_layers(
    noise: Mapping[str, float],
    least_snr: float,
    output_snr: Callable[[Sequence[str]], float],
) -> tuple[list[str], float]:
    """The layers that 8 bits would hurt too much, and the outputs' signal-to-noise ratio (dB).

    ``noise`` is each layer's own ratio, and ``output_snr`` what the outputs have if some layers are
    not in 8 bits. These are first the layers that have less than ``least_snr`` of their own; if
    the outputs then have less, a quarter, a half or all of them, the noisiest first.

    >>> choose_layers({"a": 30.0, "b": 20.0}, 15.0, lambda kept: 40.0 if "b" in kept else 9.0)
    (['b'], 40.0)
    """
    names = sorted(noise, key=lambda name: noise[name])
    noisy = sum(snr < least_snr for snr in noise.values())
    counts = [noisy, *(n for n in (len(names) // s for s in SHARES) if n > noisy)]
    found: list[tuple[float, int]] = []
    for count in counts:
        snr = output_snr(names[:count])
        found.append((snr, count))
        if snr >= least_snr:
            break
    best, count = found[-1] if found[-1][0] >= least_snr else max(found)
    return names[:count], best
