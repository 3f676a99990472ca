"""What a model that hears is calibrated with: recordings, and what is said in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends.qnn.calibrate import Calibrated, Feed, outputs_in_floats
from satchel.backends.qnn.feeds import ExampleFeeds, Feeds, Probe, TextFeeds
from satchel.backends.qnn.lowering import Lowered
from satchel.backends.qnn.manifest import CompiledMethod
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.speech.tokens import Tokens
from satchel.speech.whisper import DECODE, ENCODE

if TYPE_CHECKING:
    from satchel.calibration.sound import Spoken

Array = NDArray[Any]
BLOCK = 8  # tokens that are measured together
# Recordings whose words are written: what is heard of each is held in memory.
MOST_WRITTEN = 8


def speech_feeds(spoken: Sequence[Spoken], vocab_size: int, window: tuple[int, int]) -> list[Feeds]:
    """For the encoder and the decoder; without recordings one of noise, for programs that compute
    in floats. ``window`` has the frames and mels of one."""
    special = Tokens.of_vocabulary(vocab_size)
    begin = [special.start]
    if special.multilingual:
        begin += [special.language("en"), special.transcribe]
    mels = [one.mel for one in spoken]
    words = [one.words for one in spoken]
    if not spoken:
        noise = np.random.default_rng(0).normal(0.0, 0.5, window)
        mels = [np.clip(noise, -1.0, 1.5).astype(np.float32)]
        words = [tuple(range(special.first_timestamp, special.first_timestamp + 2 * BLOCK))]
    texts = [np.array([*begin, *said], np.int32) for said in words]
    long = [number for number, text in enumerate(texts) if len(text) >= BLOCK][:MOST_WRITTEN]
    writing = WritingFeeds(
        DECODE, [texts[number] for number in long], BLOCK, [mels[number] for number in long]
    )
    return [ExampleFeeds(ENCODE, [{"mel": mel} for mel in mels]), writing]


@dataclass(frozen=True)
class WritingFeeds(TextFeeds):
    """Texts of the decoder, each over what is heard of its recording."""

    mels: Sequence[Array] = ()
    _first: dict[str, Array] = field(default_factory=dict)  # what is heard of the first one

    def feeds(self, prepared: PreparedProgram, lowered: Lowered) -> list[Feed]:
        encoder = prepared.lowered[ENCODE]
        made = []
        for text, mel in zip(self.texts, self.mels, strict=True):
            known = outputs_in_floats(encoder.npu, prepared.weights, {"mel": mel})
            heard = {name: known[name] for name in encoder.held}
            self._first.update({} if self._first else heard)
            for feed in TextFeeds(self.method, [text], self.block).feeds(prepared, lowered):
                made.append(Feed(feed.values | heard, feed.position))
        return made

    def probe(self, prepared: PreparedProgram, calibrated: Calibrated) -> Probe:
        probe = super().probe(prepared, calibrated)
        tensors = prepared.methods[self.method].tensors
        probe.codes |= {k: tensors[k].encoding.quantize(a) for k, a in self._first.items()}
        return probe

    def probed(self, prepared: PreparedProgram) -> CompiledMethod:
        return prepared.methods[self.method]
