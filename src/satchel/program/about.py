"""What a program says of itself: one class for each kind of program.

The exporter writes the document from the class that it is read back into; ``program/metadata.py``
has checked it by then. What else a document holds is kept in ``more``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class About:
    """What all kinds of programs have. What a document lacks has its default."""

    kind: ClassVar[str] = "unknown"
    order: ClassVar[tuple[str, ...]] = ()  # in which the fields are written

    satchel_version: str = ""
    name: str = ""
    architecture: str = ""
    parameters: int = 0
    target: str = "cpu"
    targets: list[str] = field(default_factory=list)  # where there are several
    payloads: Mapping[str, Any] = field(default_factory=dict)  # by target
    recipe: Mapping[str, Any] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)
    weight_error: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipe_description(self) -> str | None:
        """The recipe in words, if the document has them."""
        return self.recipe.get("description")

    def to_dict(self) -> dict[str, Any]:
        """The document, as it is written; targets and payloads only where there are some."""
        document = {"satchel_version": self.satchel_version, "kind": self.kind}
        document |= {name: getattr(self, name) for name in self.order}
        extra = {name: getattr(self, name) for name in ("targets", "payloads")}
        return document | dict(self.more) | {name: value for name, value in extra.items() if value}


@dataclass(frozen=True, kw_only=True)
class AboutLanguageModel(About):
    """What sessions, chats and evaluations need to know."""

    kind = "llm"
    order = (
        *("name", "architecture", "parameters", "target", "context", "mode", "prefill_ar_len"),
        *("lookahead", "vocab_size", "generation", "recipe", "adapters", "pooling", "runner"),
        *("placement", "weight_error", "layer_error", "provenance", "tokenizer"),
    )

    context: int = 0
    mode: str = "hybrid"
    prefill_ar_len: int | None = None
    lookahead: Mapping[str, Any] | None = None
    vocab_size: int = 0
    generation: Mapping[str, Any] = field(default_factory=dict)
    adapters: list[str] = field(default_factory=list)
    pooling: str | None = None  # how a text becomes one vector, if it does
    runner: Mapping[str, Any] = field(default_factory=dict)  # what other runners ask for
    layer_error: Mapping[str, list[float]] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AboutModule(About):
    """Of any other model; classifiers of images have ``vision`` in ``more``."""

    kind = "module"
    order = (
        *("name", "architecture", "parameters", "target", "recipe", "layer_snr_db"),
        *("kept_in_float", "output_snr_db", "in_16_bits", "placement", "weight_error"),
        "provenance",
    )

    layer_snr_db: Mapping[str, float] = field(default_factory=dict)
    kept_in_float: list[str] = field(default_factory=list)
    output_snr_db: float | None = None
    in_16_bits: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class AboutSpeech(About):
    """Of a model that writes down what is said: Whisper."""

    kind = "speech"
    order = (
        *("name", "architecture", "parameters", "target", "mels", "context", "vocab_size"),
        *("alignment_heads", "recipe", "placement", "weight_error", "provenance", "tokenizer"),
    )

    mels: int = 80
    context: int = 448
    vocab_size: int = 0
    alignment_heads: list[list[int]] = field(default_factory=list)  # [layer, head]
    tokenizer: Mapping[str, Any] = field(default_factory=dict)


KINDS: dict[str, type[About]] = {
    one.kind: one for one in (AboutLanguageModel, AboutModule, AboutSpeech)
}


def read_about(document: Mapping[str, Any]) -> About:
    """Metadata that have been checked, as the class of their kind.

    >>> read_about({"kind": "llm", "context": 64}).context
    64
    """
    known = KINDS.get(document.get("kind") or "", About)
    names = {each.name for each in fields(known)} - {"more"}
    given = {k: v for k, v in document.items() if k in names and v is not None}
    more = {k: v for k, v in document.items() if k not in names and k != "kind"}
    return known(**given, more=more)
