"""Speech as it is spoken: cut at pauses, and transcribed piece by piece."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from satchel.errors import InputError
from satchel.speech.mel import RATE, WINDOW_SECONDS, Sound

BLOCK = RATE // 10  # a tenth of a second
_PAUSE = 7  # blocks without speech that end a piece
_BEFORE = 3  # blocks kept from before speech begins
_LOUDER = 3.0  # speech is so much louder than what is heard without it
_LEAST = 1e-3
_LOOK_SECONDS = 0.2  # whether it is to end


def pieces(blocks: Iterable[Sound]) -> Iterator[Sound]:
    """What is said between pauses, of blocks of a tenth of a second; at most 30 seconds each.

    How loud silence is follows what is heard: it falls at once and rises slowly.
    """
    silence, quiet = _LEAST, 0
    waiting: list[Sound] = []
    speaking = False
    for block in blocks:
        loud = float(np.sqrt(np.mean(np.square(block)))) if len(block) else 0.0
        silence = max(_LEAST, min(loud, silence) if loud < silence else silence * 1.02)
        silence = min(silence, max(loud, _LEAST))
        waiting.append(block)
        if loud > _LOUDER * silence:
            speaking, quiet = True, 0
        elif speaking:
            quiet += 1
        else:
            waiting = waiting[-_BEFORE:]
        full = len(waiting) * BLOCK >= WINDOW_SECONDS * RATE
        if speaking and (quiet >= _PAUSE or full):
            yield np.concatenate(waiting)
            waiting, speaking, quiet = [], False, 0
    if speaking:
        yield np.concatenate(waiting)


def microphone_blocks(device: str | None, ended: threading.Event) -> Iterator[Sound]:
    """Blocks of a microphone, by a part of its name or its number, until it is ``ended``."""
    try:
        import sounddevice
    except ImportError:
        raise InputError(
            "the microphone needs sounddevice", "pip install 'satchel[microphone]'."
        ) from None
    except OSError as error:  # without PortAudio
        raise InputError(f"there is no sound on this machine ({error})", "Give a file.") from None
    heard: queue.Queue[Sound] = queue.Queue()

    def keep(block: Any, _frames: int, _time: Any, _status: Any) -> None:
        heard.put(block[:, 0].copy())

    chosen = int(device) if device is not None and device.isdecimal() else device
    try:
        with sounddevice.InputStream(
            RATE, BLOCK, chosen, channels=1, dtype="float32", callback=keep
        ):
            while not ended.is_set():
                with suppress(queue.Empty):
                    yield heard.get(timeout=_LOOK_SECONDS)
    except (sounddevice.PortAudioError, ValueError) as error:
        raise InputError(
            f"the microphone cannot be used ({error})", "Choose another with --device NAME."
        ) from None
    while not heard.empty():  # what was said while a text was found
        yield heard.get()
