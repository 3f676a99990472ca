"""How an export rounds its weights, and the text that tells it what the layers see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.calibration.built_in import BUILT_IN
from satchel.calibration.watch import MOST_BYTES, SeenInput
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
    from satchel.calibration.pictures import CalibrationPictures
    from satchel.calibration.texts import CalibrationText
    from satchel.llm.tokenizer import Tokenizer
    from satchel.vision_language.towers import Tower


def check_rounded(options: ExportOptions, encodings: Mapping[str, Encoding]) -> str:
    """The way of rounding that the options ask for; RecipeError if nothing is rounded."""
    name = check_rounding(options.rounding, options.calibrate is not None)
    rounded = any(encoding.is_quantized for encoding in encodings.values())
    if not rounded and (options.rounding or options.calibrate):
        raise RecipeError(
            f"{options.recipe} does not round weights, so there is nothing to calibrate",
            "Leave --calibrate and --rounding out, or choose another recipe.",
        )
    return name


@dataclass(frozen=True)
class RoundingPlan:
    """``name`` is the way of rounding; ``text`` is None where nothing is calibrated.

    Making it reads the text, so what is wrong with it is known before the long work.
    """

    name: str
    text: CalibrationText | None = None
    pictures: CalibrationPictures | None = None  # which the model is shown beside the text
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
        tower: Tower | None = None,
    ) -> RoundingPlan:
        name = check_rounded(options, encodings)
        if options.calibrate is None:
            return RoundingPlan(name, form=options.chip.scale_form)
        from satchel.calibration.texts import read_calibration

        form = options.chip.scale_form
        if tower is not None and Path(options.calibrate).expanduser().is_dir():
            from satchel.calibration.pictures import read_pictures

            text = read_calibration(BUILT_IN, tokenizer, longest=model.context)
            samples = options.calibrate_samples
            pictures = read_pictures(options.calibrate, tower, text, samples)
            return RoundingPlan(name, text, pictures, form)
        text = read_calibration(
            options.calibrate,
            tokenizer,
            options.calibrate_limit,
            model.context,
            options.calibrate_samples,
            options.calibrate_length,
        )
        return RoundingPlan(name, text, form=form)

    def rounder(
        self,
        checkpoint: Checkpoint,
        model: Decoder,
        graphs: Sequence[Graph],
        packer: WeightPacker,
        progress: Progress,
        adapters: Sequence[Path] = (),
        tower: Tower | None = None,
    ) -> Rounder:
        """Ready to round; the model is run now unless the statistics are in the cache.

        ``adapters`` are the folders of those that are merged into the checkpoint's weights.
        """
        text = self.text
        if text is None:
            return Rounder(self.name, lambda _: None, packer.threads, self.form)
        from satchel.calibration import layers
        from satchel.calibration.store import collect_statistics

        # What is collected is of the model as it is, so it serves rotated exports too.
        plain = checkpoint.base if isinstance(checkpoint, RotatedCheckpoint) else checkpoint
        read = WeightPacker(plain, packer.threads).rows

        def told(done: int, total: int) -> None:
            progress("Calibrating, layers", done, total)

        def seen() -> Iterator[SeenInput]:
            if self.pictures is None or tower is None:
                return layers.layer_inputs(model, read, text.windows, told)
            from satchel.calibration.pictures import shown_inputs

            return shown_inputs(tower, model, read, self.pictures, told)

        statistics = collect_statistics(
            [
                *(file_facts(path) for path in (checkpoint.path, *adapters)),
                sorted(checkpoint.config.items(), key=str),
            ],
            self.pictures or text,
            seen,
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
        if self.pictures is not None:
            frames = sum(frame.nbytes for frame in self.pictures.frames)
            states += MOST_BYTES + frames + 4 * frames  # and what the tower makes of one
        # The sums of all inputs of a layer in float64; later the inverse and its factor.
        calibrating = states + layer + 16 * widest**2
        return max(calibrating, rounding + 40 * widest**2)

    def describe(self) -> dict[str, Any]:
        """For the program's metadata."""
        if self.text is None:
            return {"rounding": self.name, "calibration": None}
        if self.pictures is not None:
            source, shown = Path(self.pictures.source).name, self.pictures.pictures
            used = {"source": source, "tokens": self.text.tokens, "samples": shown}
            return {"rounding": self.name, "calibration": used}
        source = self.text.source
        if not source.startswith(("prompt:", "task:")):
            source = Path(source).name
        used = {"source": source, "tokens": self.text.tokens}
        if self.text.apart:
            used["samples"] = len(self.text.windows)
        return {"rounding": self.name, "calibration": used}


def _rotated_moments(
    checkpoint: RotatedCheckpoint, graphs: Sequence[Graph], moments: MomentsOf
) -> MomentsOf:
    """By a weight's name, what its layer sees when the model is rotated."""
    tensors = {w.name: w.source.tensor for graph in graphs for w in graph.weights()}
    return lambda name: checkpoint.moments(tensors[name], moments(name))
