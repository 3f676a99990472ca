"""What the recipe ``keep`` takes from a checkpoint as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from satchel.checkpoints.base import Checkpoint
from satchel.errors import RecipeError
from satchel.graph.ir import Graph
from satchel.quantize.encoding import Encoding


@dataclass(frozen=True)
class KeptTensors:
    """The encodings, by tensor, that store a checkpoint's matrices as they are.

    ``forms`` counts the matrices by the type that the checkpoint has them in; those of ``rounded``
    have none that is exact, and are stored in 16 bits.
    """

    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    forms: Mapping[str, int] = field(default_factory=dict)
    rounded: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(checkpoint: Checkpoint) -> KeptTensors:
        matrices = {n: t for n, t in checkpoint.tensors.items() if len(t.shape) == 2}
        encodings = {name: t.kept for name, t in matrices.items() if t.kept}
        if not any(encoding.is_quantized for encoding in encodings.values()):
            found = ", ".join(sorted({t.dtype for t in matrices.values()}))
            raise RecipeError(
                f"{checkpoint.path} has nothing quantised to keep: its weights are {found}",
                "Choose another recipe, for example 8da4w.",
            )
        return KeptTensors(
            encodings,
            Counter(matrices[name].dtype for name in encodings),
            Counter(t.dtype for t in matrices.values() if t.kept is None),
        )

    def weights(self, graphs: Sequence[Graph], chosen: Mapping[str, Encoding]) -> frozenset[str]:
        """The weights whose codes come from the checkpoint, given the encodings chosen."""
        return frozenset(
            weight.name
            for graph in graphs
            for weight in graph.weights()
            if chosen[weight.name].is_quantized
            and chosen[weight.name] == self.encodings.get(weight.source.tensor)
        )

    def describe(self) -> str | None:
        """
        >>> KeptTensors({}, {"q4_1": 210, "q8_0": 1}, {"q6_k": 2}).describe()
        '210 q4_1, 1 q8_0; in 16 bits: 2 q6_k'
        """
        parts = [_listed(self.forms)]
        if self.rounded:
            parts.append(f"in 16 bits: {_listed(self.rounded)}")
        return "; ".join(parts) if self.forms else None


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
