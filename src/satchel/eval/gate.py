"""Refuses a program that quantisation made worse than it may be, and says what made it so."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError, QualityError
from satchel.eval.layer_costs import LayerCost, describe_costs, layer_costs
from satchel.eval.perplexity import Perplexity, measure_perplexity
from satchel.eval.record import Record
from satchel.eval.texts import digest_of, leading_tokens, read_text, text_tokens
from satchel.eval.windows import Window, split_windows
from satchel.exporter import ExportOptions, ModelExport, prepare_export
from satchel.files import refuse_existing, take_place
from satchel.llm.session import Session
from satchel.llm.tokenizer import Tokenizer
from satchel.runtime.program import Program
from satchel.sources.cache import partial_folder
from satchel.sources.progress import Progress, silent


@dataclass(frozen=True)
class QualityGate:
    """At most ``max_ppl_increase`` more perplexity than the float model's, on this text."""

    max_ppl_increase: float
    text: str | os.PathLike[str]
    limit: int | None = None
    window: int = 2048

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_ppl_increase) and self.max_ppl_increase >= 0):
            raise ConfigError(
                f"the perplexity cannot be allowed to rise by {self.max_ppl_increase}",
                "Give a number that is not negative, such as 0.5.",
            )


class GatedExport:
    """An export that is kept only if it is good enough. The text is read when this is made."""

    def __init__(
        self,
        source: str | os.PathLike[str],
        export: ModelExport,
        gate: QualityGate,
        progress: Progress = silent,
        counted: Progress = silent,
    ) -> None:
        self.source, self.export, self.gate = source, export, gate
        self.progress, self.counted = progress, counted
        tokenizer = Tokenizer(export.tokenizer)
        self.lead = leading_tokens(tokenizer)
        text = read_text(Path(gate.text))
        self.tokens = text_tokens(tokenizer, text, gate.limit, str(gate.text))
        self.windows = self._windows(self.tokens)

    def _windows(self, tokens: Sequence[int]) -> list[Window]:
        return split_windows(tokens, self.lead, min(self.gate.window, self.export.opened.context))

    def run(self, output: Path, overwrite: bool = False, threads: int = 0) -> dict[str, Any]:
        """Write the program if it is good enough; else QualityError, and no file is left.

        The result is the field ``quality`` of ``satchel export --json``.
        """
        refuse_existing(output, overwrite)
        with partial_folder(output.absolute().parent) as folder:
            made = self.export.run(folder / "program.satchel", threads=threads)
            options = self.export.opened.options
            as_float = ExportOptions(
                recipe="fp32",
                context=self.export.opened.context,
                prefill_ar_len=options.prefill_ar_len,
                lora=options.lora,
            )
            floating = prepare_export(self.source, as_float, self.progress)
            plain = self._measure("fp", floating.run(folder / "float.satchel", threads=threads))
            os.unlink(folder / "float.satchel")
            ours = self._measure("device", made)
            increase = ours.ppl - plain.ppl
            if increase > self.gate.max_ppl_increase:
                raise self._refusal(plain, ours, self._costs(made, folder, threads))
            take_place(made, output, overwrite)
        return {
            "fp_ppl": plain.ppl,
            "device_ppl": ours.ppl,
            "increase": increase,
            "max_ppl_increase": self.gate.max_ppl_increase,
            "tokens": ours.tokens,
        }

    def _measure(self, phase: str, path: Path) -> Perplexity:
        session = Session(Program(path))
        key = {
            "kind": "perplexity",
            "phase": phase,
            "program": session.program.checksum,
            "kernels": session.instance.kernels,
            "satchel": version("satchel"),
            "text": digest_of(self.tokens, self.lead),
            "window": min(self.gate.window, session.context),
            "stride": None,
            "limit": self.gate.limit,
        }
        told = partial(self.counted, f"Perplexity of {phase}, tokens")
        return measure_perplexity(session, self.windows, Record(key), told)

    def _costs(self, made: Path, folder: Path, threads: int) -> list[LayerCost]:
        def again() -> ModelExport:
            return prepare_export(self.source, self.export.opened.options)

        told = partial(self.counted, "Looking for the layers that did it")
        return layer_costs(Program(made), again, self.tokens, self._windows, folder, threads, told)

    def _refusal(
        self, plain: Perplexity, ours: Perplexity, costs: Sequence[LayerCost]
    ) -> QualityError:
        return QualityError(
            f"the perplexity rises by {ours.ppl - plain.ppl:.3f}, from {plain.ppl:.3f} to "
            f"{ours.ppl:.3f} over {ours.tokens} tokens of {self.gate.text}, and "
            f"{self.gate.max_ppl_increase:g} is allowed",
            describe_costs(costs) + " Choose another recipe, or allow more.",
        )
