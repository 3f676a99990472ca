"""What a scheme is: how linear layers are stored and what becomes of their activations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from satchel.encodings.encoding import Encoding
from satchel.errors import RecipeError
from satchel.graph.ir import DType


@dataclass(frozen=True)
class Form:
    """A way to store a matrix. ``grouped``: the group size can be chosen, else it is a row."""

    kind: str
    grouped: bool = False

    def encoding(self, group: int, cols: int) -> Encoding:
        encoding = Encoding(self.kind)
        if not encoding.is_quantized:
            return encoding
        return Encoding(self.kind, (group if self.grouped else 0) or cols)


@dataclass(frozen=True)
class Scheme:
    """The data of a scheme; its file in ``schemes/`` fills it in.

    ``forms`` has, by bits, how a weight is stored: the layers with ``bits``, the head with
    ``head_bits`` unless told otherwise.
    """

    name: str
    bits: int
    forms: Mapping[int, Form]
    activations: str = "f32"  # the attribute of the op linear
    groups: tuple[int, ...] = ()  # what the group size may be, the default first
    # (bits, group) of the embedding, 0 for a whole row; None for the layers' group
    embedding: tuple[int, int | None] | None = None
    head_bits: int | None = None
    cache: DType = DType.f16

    @property
    def is_quantized(self) -> bool:
        return self.embedding is not None

    @property
    def activation_bits(self) -> int:
        return {"int8": 8, "int16": 16}.get(self.activations, 32)

    def checked_group(self, group: int | None) -> int:
        """The group size, or the default; 0 where none can be chosen."""
        if not self.groups:
            if group:
                why = "has one scale for each row" if self.is_quantized else "does not quantise"
                raise RecipeError(f"{self.name} {why}, so it takes no group size")
            return 0
        group = group or self.groups[0]
        if group not in self.groups:
            allowed = ", ".join(map(str, sorted(self.groups)))
            raise RecipeError(f"the group size {group} is not supported", f"Use {allowed}.")
        return group

    def checked_head_bits(self, bits: int | None) -> int | None:
        bits = bits or self.head_bits
        if bits is not None and bits not in self.forms:
            allowed = " or ".join(map(str, sorted(self.forms)))
            raise RecipeError(f"the head can have {allowed} bits, not {bits}")
        return bits
