"""Mixtures of experts: feed-forward layers of which every token chooses a few."""

from __future__ import annotations

from dataclasses import dataclass

from satchel.errors import ConfigError
from satchel.graph.ir import Value
from satchel.graph.ops.experts import EXPERT_ROWS
from satchel.models.base import Step, activated, linear, split


@dataclass(frozen=True)
class Experts:
    """How many there are, how many a token chooses, and what they are."""

    count: int
    chosen: int
    hidden: int
    ffn: int
    activation: str = "silu"
    # The chosen ones' shares add up to 1; else they are what they are among all experts.
    normed: bool = True

    def __post_init__(self) -> None:
        if self.chosen > self.count:
            raise ConfigError(f"a token cannot choose {self.chosen} of {self.count} experts")
        for size in (self.hidden, self.ffn):
            if size % EXPERT_ROWS:
                raise ConfigError(
                    f"experts of {size} rows are not supported", "16 must divide the number."
                )

    def mix(self, step: Step, x: Value, name: str) -> Value:
        """[S, hidden] -> [S, hidden]: the chosen experts' results, each times its share.

        ``name`` is that of the block: its layer ``gate`` chooses, ``experts`` has the other three.
        """
        b = step.builder
        scores = linear(step, x, f"{name}.gate", self.count, role="router")
        order = b.argsort(scores, axis=1, descending=1)
        chosen = b.slice(order, axis=1, start=0, stop=self.chosen)
        if self.normed:
            shares = b.softmax(b.gather(scores, chosen, axis=1), axis=1)
        else:
            shares = b.gather(b.softmax(scores, axis=1), chosen, axis=1)
        gate = self._layer(step, x, f"{name}.experts.gate_proj", self.ffn, chosen)
        up = self._layer(step, x, f"{name}.experts.up_proj", self.ffn, chosen)
        inner = b.mul(activated(step, gate, self.activation), up)
        results = self._layer(step, inner, f"{name}.experts.down_proj", self.hidden, chosen)
        mixed = b.matmul(split(step, shares, 1, self.chosen), results)
        return split(step, mixed, self.hidden)

    def _layer(self, step: Step, x: Value, name: str, out: int, chosen: Value) -> Value:
        width = x.shape[-1]
        assert isinstance(width, int)
        weight = step.builder.weight(f"{name}.weight", (self.count * out, width))
        return step.builder.node("expert_linear", x, weight, chosen, experts=self.count)
