"""How the weights of a model that hears are rounded, and the recordings that tell what they see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.checkpoints.base import Checkpoint
from satchel.encodings.encoding import Encoding
from satchel.exporter.options import ExportOptions
from satchel.exporter.rounding import check_rounded
from satchel.exporter.weights import BLOCK_BYTES, WeightPacker
from satchel.graph.ir import Graph
from satchel.quantize.rounding import PLAIN, Rounder
from satchel.sources.cache import file_facts
from satchel.sources.progress import Progress
from satchel.speech.whisper import Whisper

if TYPE_CHECKING:
    from satchel.calibration.sound import CalibrationSound
    from satchel.llm.tokenizer import TokenizerSpec


@dataclass(frozen=True)
class SpeechRounding:
    """``name`` is the way of rounding; ``sound`` is None where nothing is calibrated.

    Making it reads the recordings, so what is wrong with them is known before the long work.
    """

    name: str
    sound: CalibrationSound | None = None

    @staticmethod
    def of(
        options: ExportOptions,
        encodings: Mapping[str, Encoding],
        tokenizer: TokenizerSpec,
        model: Whisper,
    ) -> SpeechRounding:
        name = check_rounded(options, encodings)
        if options.calibrate is None:
            return SpeechRounding(name)
        from satchel.calibration.sound import read_recordings
        from satchel.llm.tokenizer import Tokenizer
        from satchel.speech.vocabulary import Vocabulary

        vocabulary = Vocabulary(Tokenizer(tokenizer), model.vocab_size)
        sound = read_recordings(options.calibrate, vocabulary, model, options.calibrate_samples)
        return SpeechRounding(name, sound)

    def rounder(
        self, checkpoint: Checkpoint, model: Whisper, packer: WeightPacker, progress: Progress
    ) -> Rounder | None:
        """Ready to round; the model is run now unless the statistics are in the cache."""
        sound = self.sound
        if sound is None:
            if self.name == PLAIN:  # by the native core
                return None
            return Rounder(self.name, lambda _: None, packer.threads)
        from satchel.calibration.sound import heard_inputs
        from satchel.calibration.store import collect_statistics

        statistics = collect_statistics(
            [file_facts(checkpoint.path), sorted(checkpoint.config.items(), key=str)],
            sound,
            lambda: heard_inputs(
                model,
                WeightPacker(checkpoint, packer.threads).rows,
                sound.spoken,
                lambda done, total: progress("Calibrating, recordings", done, total),
            ),
        )
        return Rounder(self.name, statistics.moments, packer.threads)

    def memory(self, model: Whisper, graphs: Sequence[Graph]) -> int:
        """Bytes beside those of plain rounding, at most."""
        if self.name == PLAIN:
            return 0
        rounding = 4 * BLOCK_BYTES  # copies of a block while its scales are searched
        if self.sound is None:
            return rounding
        from satchel.calibration.watch import MOST_BYTES

        shapes = [w.shape for graph in graphs for w in graph.weights() if len(w.shape) == 2]
        widest = max(cols for _, cols in shapes)
        largest = max(rows * cols for rows, cols in shapes)
        scores = 3 * model.encoder_heads * model.positions**2  # of the encoder's attention
        windows = len(self.sound.spoken) * model.frames * model.mels
        calibrating = MOST_BYTES + 4 * (windows + scores + largest)
        return max(calibrating, rounding + 40 * widest**2)

    def describe(self) -> dict[str, Any]:
        """For the program's metadata."""
        if self.sound is None:
            return {"rounding": self.name, "calibration": None}
        used = {
            "source": Path(self.sound.source).name,
            "samples": len(self.sound.spoken),
            "tokens": self.sound.tokens,
        }
        return {"rounding": self.name, "calibration": used}
