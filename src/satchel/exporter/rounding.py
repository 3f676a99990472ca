"""How an export rounds its weights, and the text that tells it what the layers see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.checkpoints.base import Checkpoint
from satchel.encodings.encoding import Encoding
from satchel.errors import RecipeError
from satchel.exporter.options import ExportOptions
from satchel.exporter.weights import BLOCK_BYTES, WeightPacker
from satchel.graph.ir import Graph
from satchel.models.base import Decoder
from satchel.quantize.rotation import RotatedCheckpoint
from satchel.quantize.rounding import Rounder, check_rounding
from satchel.quantize.rounding.rounder import MomentsOf
from satchel.quantize.scale_form import ANY, ScaleForm
from satchel.sources.cache import file_facts
from satchel.sources.progress import Progress

if TYPE_CHECKING:
    from satchel.calibration.texts import CalibrationText
    from satchel.llm.tokenizer import Tokenizer


@dataclass(frozen=True)
class RoundingPlan:
    """``name`` is the way of rounding; ``text`` is None where nothing is calibrated.

    Making it reads the text, so what is wrong with it is known before the long work.
    """

    name: str
    text: CalibrationText | None = None
    form: ScaleForm = ANY  # the scales that the target takes

    @property
    def is_native(self) -> bool:
        """Whether the native core rounds."""
        return self.name == "plain" and self.form == ANY

    @staticmethod
    def of(
        options: ExportOptions,
        encodings: Mapping[str, Encoding],
        tokenizer: Tokenizer,
        model: Decoder,
    ) -> RoundingPlan:
        name = check_rounding(options.rounding, options.calibrate is not None)
        rounded = any(encoding.is_quantized for encoding in encodings.values())
        if not rounded and (options.rounding or options.calibrate):
            raise RecipeError(
                f"{options.recipe} does not round weights, so there is nothing to calibrate",
                "Leave --calibrate and --rounding out, or choose another recipe.",
            )
        if options.calibrate is None:
            return RoundingPlan(name, form=options.chip.scale_form)
        from satchel.calibration.texts import read_calibration

        text = read_calibration(
            options.calibrate,
            tokenizer,
            options.calibrate_limit,
            model.context,
            options.calibrate_samples,
            options.calibrate_length,
        )
        return RoundingPlan(name, text, options.chip.scale_form)

    def rounder(
        self,
        checkpoint: Checkpoint,
        model: Decoder,
        graphs: Sequence[Graph],
        packer: WeightPacker,
        progress: Progress,
        adapters: Sequence[Path] = (),
    ) -> Rounder:
        """Ready to round; the model is run now unless the statistics are in the cache.

        ``adapters`` are the folders of those that are merged into the checkpoint's weights.
        """
        if self.text is None:
            return Rounder(self.name, lambda _: None, packer.threads, self.form)
        from satchel.calibration.store import collect_statistics

        # What is collected is of the model as it is, so it serves rotated exports too.
        plain = checkpoint.base if isinstance(checkpoint, RotatedCheckpoint) else checkpoint
        statistics = collect_statistics(
            [
                *(file_facts(path) for path in (checkpoint.path, *adapters)),
                sorted(checkpoint.config.items(), key=str),
            ],
            model,
            WeightPacker(plain, packer.threads).rows,
            self.text,
            lambda done, total: progress("Calibrating, layers", done, total),
        )
        moments: MomentsOf = statistics.moments
        if isinstance(checkpoint, RotatedCheckpoint):
            moments = _rotated_moments(checkpoint, graphs, moments)
        return Rounder(self.name, moments, packer.threads, self.form)

    def memory(self, model: Decoder, graphs: Sequence[Graph]) -> int:
        """Bytes beside those of plain rounding, at most."""
        if self.is_native and self.text is None:
            return 0
        rounding = 4 * BLOCK_BYTES  # copies of a block while its scales are searched
        if self.text is None:
            return rounding
        shapes = [w.shape for w in graphs[0].weights() if w.role == "linear"]
        widest = max(cols for _, cols in shapes)
        layer = 4 * sum(rows * cols for rows, cols in shapes) // model.layers
        states = 2 * 4 * self.text.tokens * model.hidden
        # The sums of all inputs of a layer in float64; later the inverse and its factor.
        calibrating = states + layer + 16 * widest**2
        return max(calibrating, rounding + 40 * widest**2)

    def describe(self) -> dict[str, Any]:
        """For the program's metadata."""
        if self.text is None:
            return {"rounding": self.name, "calibration": None}
        source = self.text.source
        if not source.startswith(("prompt:", "task:")):
            source = Path(source).name
        used: dict[str, Any] = {"source": source, "tokens": self.text.tokens}
        if self.text.apart:
            used["samples"] = len(self.text.windows)
        return {"rounding": self.name, "calibration": used}


def _rotated_moments(
    checkpoint: RotatedCheckpoint, graphs: Sequence[Graph], moments: MomentsOf
) -> MomentsOf:
    """By a weight's name, what its layer sees when the model is rotated."""
    tensors = {w.name: w.source.tensor for graph in graphs for w in graph.weights()}
    return lambda name: checkpoint.moments(tensors[name], moments(name))
