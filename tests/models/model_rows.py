"""Every architecture in its variations, as changes to a tiny config. A new one adds rows here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ModelRow:
    model_type: str
    name: str
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.model_type}-{self.name}"


# Wavelengths of 16 … 64 are blended: with heads of 16 there are two such frequencies, and the
# test goes past position 64.
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

ROWS = [
    ModelRow("llama", "grouped_query"),
    ModelRow("llama", "tied", {"tie_word_embeddings": True}),
    ModelRow("llama", "multi_head", {"num_key_value_heads": 4}),
    ModelRow("llama", "multi_query", {"num_key_value_heads": 1}),
    ModelRow("llama", "llama3_rope", {"rope_parameters": LLAMA3_SCALING}),
    ModelRow(
        "llama",
        "linear_rope",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}},
    ),
    ModelRow("llama", "attention_bias", {"attention_bias": True}),
    ModelRow("llama", "mlp_bias", {"mlp_bias": True, "attention_bias": True}),
    ModelRow("llama", "wide_heads", {"head_dim": 32}),
    ModelRow("llama", "odd_sizes", {"hidden_size": 60, "head_dim": 10, "intermediate_size": 77}),
    ModelRow("llama", "rms_eps", {"rms_norm_eps": 0.1}),
]
