"""How a program's compiled methods are called, in full: ``qnn/manifest.json`` (docs/qnn.md).

It says what each compiled graph takes and gives, in which shape and in which codes, where that
comes from and where it goes. A runner needs nothing else to use the binaries.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from satchel.backends.qnn.annotate import Encodings
from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.halves import FLOATS, read_encoding
from satchel.backends.qnn.lowering import CacheInput, Lowered, MaskInput
from satchel.backends.qnn.settings import Settings
from satchel.errors import ProgramFormatError, SatchelError
from satchel.graph.ir import Graph, Value, largest
from satchel.quantize.static import ActivationEncoding

VERSION = 2
_MOST_TOKENS, _MOST_NUMBERS = 1 << 16, 1 << 32


@dataclass(frozen=True)
class Tensor:
    """An input or output of a compiled graph: codes of a shape."""

    name: str
    shape: tuple[int, ...]
    encoding: ActivationEncoding

    def to_dict(self) -> dict[str, Any]:
        one = self.encoding
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": one.dtype.name,
            "scale": one.scale,
            "zero_point": one.zero_point,
        }

    @staticmethod
    def read(document: Mapping[str, Any]) -> Tensor:
        bits = {"uint8": 8, "uint16": 16, "float16": FLOATS}[document["dtype"]]
        shape = tuple(int(d) for d in document["shape"])
        numbers = 1
        for dim in shape:
            numbers *= dim
            if not 1 <= numbers <= _MOST_NUMBERS:
                raise ValueError(f"the shape {list(shape)}")
        scale, zero = float(document["scale"]), int(document["zero_point"])
        return Tensor(str(document["name"]), shape, read_encoding(scale, zero, bits))


@dataclass
class Shard:
    """One compiled graph of a method."""

    model: str  # the EPContext model that names binary and graph
    inputs: list[Tensor]
    outputs: list[Tensor]
    binary: str = ""
    graph: str = ""  # its name in the binary

    def to_dict(self) -> dict[str, Any]:
        tensors = {side: [t.to_dict() for t in getattr(self, side)] for side in _SIDES}
        return {"model": self.model, "binary": self.binary, "graph": self.graph, **tensors}

    @staticmethod
    def read(document: Mapping[str, Any]) -> Shard:
        inputs, outputs = ([Tensor.read(t) for t in document[side]] for side in _SIDES)
        names = [str(document[key]) for key in ("model", "binary", "graph")]
        return Shard(names[0], inputs, outputs, names[1], names[2])


_SIDES = ("inputs", "outputs")


@dataclass
class CompiledMethod:
    """A method: what the host does ``before``, the shards in their order, what it does ``after``.

    A shard takes what ``before`` or an earlier shard gives under the same name; a mask of which
    slots each token sees; or a cache, into which the host writes the output ``new``.
    """

    name: str
    tokens: int  # of a call; a module has none
    context: int
    before: str | None
    after: str | None
    masks: list[MaskInput]
    caches: list[CacheInput]
    shards: list[Shard]
    parts: dict[str, list[str]] = field(default_factory=dict)  # of outputs that come in several
    # Outputs that are kept as they are, and inputs that are what was kept under their name.
    held: list[str] = field(default_factory=list)

    @staticmethod
    def of(
        lowered: Lowered, pieces: Sequence[Graph], encodings: Encodings, host: Collection[str]
    ) -> CompiledMethod:
        """``host`` has the names of what the CPU runs: those of the method tell what for."""

        def tensors(values: Sequence[Value]) -> list[Tensor]:
            return [Tensor(v.name, largest(v.shape), encodings[v.name]) for v in values]

        name = lowered.name
        shards = [
            Shard(f"shard{number}.{name}.onnx", tensors(piece.inputs), tensors(piece.outputs))
            for number, piece in enumerate(pieces)
        ]
        parts = [f"{name}.{part}" for part in ("before", "after")]
        before, after = (part if part in host else None for part in parts)
        masks, caches = lowered.masks, lowered.caches
        return CompiledMethod(
            name,
            lowered.tokens,
            lowered.context,
            before,
            after,
            masks,
            caches,
            shards,
            lowered.parts,
            lowered.held,
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All inputs and outputs by name."""
        return {t.name: t for shard in self.shards for t in (*shard.inputs, *shard.outputs)}

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "masks": [vars(mask) for mask in self.masks],
            "caches": [vars(cache) for cache in self.caches],
            "shards": [shard.to_dict() for shard in self.shards],
        }

    @staticmethod
    def read(document: Mapping[str, Any]) -> CompiledMethod:
        host = [document[side] for side in ("before", "after")]
        before, after = (None if name is None else str(name) for name in host)
        masks = [MaskInput(str(m["name"]), int(m["window"])) for m in document["masks"]]
        caches = [
            CacheInput(str(c["name"]), str(c["new"]), int(c["axis"])) for c in document["caches"]
        ]
        shards = [Shard.read(shard) for shard in document["shards"]]
        tokens, context = int(document["tokens"]), int(document["context"])
        name = str(document["name"])
        parts = {str(key): [str(n) for n in names] for key, names in document["parts"].items()}
        held = [str(one) for one in document.get("held", [])]
        return CompiledMethod(
            name, tokens, context, before, after, masks, caches, shards, parts, held
        )

    def check(self) -> None:
        """What goes in must have a place that it comes from, and caches their slots."""
        known = {mask.name for mask in self.masks} | {cache.name for cache in self.caches}
        tensors = self.tensors
        if not self.shards or not 0 <= self.tokens <= _MOST_TOKENS:
            raise damaged(f"{self.name} has no shards or a strange length")
        if not self.tokens <= self.context <= _MOST_NUMBERS:
            raise damaged(f"{self.name} has a strange context")
        for shard in self.shards:
            lacking = [t.name for t in shard.inputs if t.name not in known]
            if lacking and self.tokens and self.before is None:
                raise damaged(f"nothing gives {lacking[0]} to {shard.model}")
            known |= {t.name for t in (*shard.inputs, *shard.outputs)}
        for cache in self.caches:
            held, new = tensors.get(cache.name), tensors.get(cache.new)
            if held is None or new is None or cache.axis not in (1, 2):
                raise damaged(f"{self.name} has no cache {cache.name}")
            sizes = (held.shape, new.shape)
            slots = [tuple(n for i, n in enumerate(s) if i != cache.axis) for s in sizes]
            lengths = [s[cache.axis] if len(s) == 3 else 0 for s in sizes]
            fits = slots[0] == slots[1] and lengths == [self.context, self.tokens]
            if not fits or held.encoding != new.encoding:
                raise damaged(f"the new part of {cache.name} does not fit into it")
        if any(name not in tensors for name in self.held):
            raise damaged(f"{self.name} lacks what is kept between calls")
        if any(name not in tensors for names in self.parts.values() for name in names):
            raise damaged(f"{self.name} lacks a part of an output")
        for mask in self.masks:
            found = tensors.get(mask.name)
            if found is None or found.shape != (self.tokens, self.context + self.tokens):
                raise damaged(f"{self.name} has no mask {mask.name}")


@dataclass
class Manifest:
    """``cuts`` and ``encodings`` are what the binaries were compiled from, beside the graphs."""

    target: str
    vendor: str  # the version of onnxruntime-qnn that compiled it
    bits: int  # of activations; 0: they are 16-bit floats
    shared: bool  # each shard is one binary for all methods
    methods: dict[str, CompiledMethod]
    cuts: list[int] = field(default_factory=list)
    row_parts: dict[str, int] = field(default_factory=dict)  # into how many layers are split
    encodings: Encodings = field(default_factory=dict)
    shards: list[dict[str, Any]] = field(default_factory=list)  # bytes, seconds, memory, files
    settings: Settings = field(default_factory=Settings)
    # Whether a token was tried that had the same bits alone and in a block, in every shard.
    same_bits: bool = False

    @property
    def tokens(self) -> dict[str, int]:
        """The tokens that each method takes in a call."""
        return {name: method.tokens for name, method in self.methods.items()}

    def to_json(self) -> str:
        document = {
            "version": VERSION,
            **vars(self),
            "settings": self.settings.to_dict(),
            # For runners that do not know chips: what Qualcomm's provider is to be told.
            "provider": {**find_chip(self.target).options(), **self.settings.provider()},
            "methods": [method.to_dict() for method in self.methods.values()],
            "encodings": {n: [e.scale, e.zero_point, e.bits] for n, e in self.encodings.items()},
        }
        return json.dumps(document, indent=1)

    @staticmethod
    def from_json(text: bytes) -> Manifest:
        """Read what may come from anyone: every field is checked."""
        try:
            document = json.loads(text)
            if document.get("version") != VERSION:
                raise ValueError(f"version {document.get('version')}, and this is {VERSION}")
            encodings = {
                str(name): read_encoding(float(scale), int(zero), int(bits))
                for name, (scale, zero, bits) in document["encodings"].items()
            }
            methods = [CompiledMethod.read(method) for method in document["methods"]]
            manifest = Manifest(
                str(document["target"]),
                str(document["vendor"]),
                int(document["bits"]),
                bool(document["shared"]),
                {method.name: method for method in methods},
                [int(cut) for cut in document["cuts"]],
                {str(name): int(count) for name, count in document["row_parts"].items()},
                encodings,
                [dict(shard) for shard in document["shards"]],
                Settings.read(dict(document.get("settings", {}))),
                bool(document.get("same_bits", False)),
            )
            find_chip(manifest.target)
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            OverflowError,
            SatchelError,
        ) as error:
            raise damaged(f"the NPU's manifest is not readable: {error}") from None
        if manifest.bits not in (8, 16, FLOATS) or not manifest.methods:
            raise damaged("the NPU's manifest has no methods or a strange number of bits")
        for method in methods:
            method.check()
        manifest._check_held()
        return manifest

    def _check_held(self) -> None:
        """What is kept between methods is one thing to all of them."""
        known: dict[str, Tensor] = {}
        for method in self.methods.values():
            for name in method.held:
                tensor = method.tensors[name]
                if known.setdefault(name, tensor) != tensor:
                    raise damaged(f"two methods have different ideas of {name}")


def damaged(message: str) -> ProgramFormatError:
    return ProgramFormatError(message, "Export the file again.", "weights")
