"""Recipes: which precision goes where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from satchel.encodings.encoding import Encoding
from satchel.errors import RecipeError
from satchel.graph.ir import DType, Graph, Value, Weight
from satchel.graph.ops import Trait, ops_with
from satchel.quantize.overrides import Override, check_matches, parse_overrides
from satchel.quantize.scheme import Form, Scheme
from satchel.quantize.schemes import find_scheme

EMBEDDING_GROUPS = (32, 64, 128, 256)
KEEP = "keep"  # the scheme that takes encodings from the checkpoint
FIXED_ROLES = ("vector", "adapter", "router")  # of weights that no scheme rounds
CACHES = {8: DType.u8, 16: DType.f16, 32: DType.f32}  # by --kv-bits


@dataclass(frozen=True)
class Recipe:
    """What becomes of the weights, the activations and the KV cache.

    ``name`` is that of the scheme of all layers but those of ``overrides``, of which the last
    that matches counts. ``embedding`` is (bits, group), group 0 being a whole row;
    ``activation_bits`` those of activations that are rounded, if not the scheme's own.

    >>> Recipe.named("8da4w", group_size=64).describe()
    '8da4w, group size 64, embedding 4,64, head 4 bits, KV cache f16'
    """

    name: str
    group_size: int = 0
    embedding: tuple[int, int] | None = None
    head_bits: int | None = None
    cache: DType = DType.f16
    overrides: tuple[Override, ...] = ()
    activation_bits: int | None = None

    @staticmethod
    def named(
        name: str,
        group_size: int | None = None,
        embedding: tuple[int, int] | None = None,
        head_bits: int | None = None,
        kv_bits: int | None = None,
        overrides: Mapping[str, str] | None = None,
        activation_bits: int | None = None,
    ) -> Recipe:
        """The recipe of that name, with what is not given at its default."""
        scheme = find_scheme(name)
        _check_activations(scheme, activation_bits)
        if activation_bits == scheme.activation_bits:
            activation_bits = None
        if kv_bits is not None and kv_bits not in CACHES:
            raise RecipeError(f"the KV cache can have 8, 16 or 32 bits, not {kv_bits}")
        cache = CACHES[kv_bits] if kv_bits else scheme.cache
        others = parse_overrides(overrides or {})
        if scheme.embedding is None:
            if group_size or embedding or head_bits:
                raise RecipeError(
                    f"{name} does not quantise, so it takes no group size, embedding or head bits"
                )
            return Recipe(name, cache=cache, overrides=others, activation_bits=activation_bits)
        group = scheme.checked_group(group_size)
        if embedding is None:
            usual_bits, usual_group = scheme.embedding
            embedding = (usual_bits, group if usual_group is None else usual_group)
        elif embedding[0] not in (4, 8) or embedding[1] not in (0, *EMBEDDING_GROUPS):
            raise RecipeError(
                f"the embedding {embedding[0]},{embedding[1]} is not supported",
                "Use BITS,GROUP with 4 or 8 bits and a group of 32, 64, 128, 256, "
                "or 0 for a whole row.",
            )
        bits = scheme.checked_head_bits(head_bits)
        return Recipe(name, group, embedding, bits, cache, others, activation_bits)

    def describe(self) -> str:
        parts = [self.name]
        if self.activation_bits:
            parts.append(f"activations {self.activation_bits} bits")
        if self.group_size:
            parts.append(f"group size {self.group_size}")
        if self.embedding:
            parts.append("embedding {},{}".format(*self.embedding))
            parts.append(f"head {self.head_bits} bits")
        return ", ".join([*parts, f"KV cache {self.cache.name}", *map(str, self.overrides)])

    @property
    def kv_bits(self) -> int:
        return 8 * self.cache.size

    @property
    def is_quantized(self) -> bool:
        """Whether layers are rounded to few bits."""
        schemes = (find_scheme(self.name), *(o.scheme for o in self.overrides))
        return any(scheme.is_quantized for scheme in schemes)

    @property
    def keeps(self) -> bool:
        """Whether something that is quantised in the checkpoint is stored as it is."""
        return KEEP in (self.name, *(o.scheme.name for o in self.overrides))

    @property
    def activations(self) -> str:
        """What the linear layers without an override make of their activations."""
        bits = self.activation_bits
        return f"int{bits}" if bits else find_scheme(self.name).activations

    def override_of(self, weight: Weight) -> Override | None:
        return next((o for o in reversed(self.overrides) if o.matches(weight.name)), None)

    def encoding(self, weight: Weight, role: str) -> Encoding:
        """How a weight is stored when it is used in this role."""
        return self.choose(weight, role)[0]

    def choose(self, weight: Weight, role: str) -> tuple[Encoding, str]:
        """How a weight is stored in this role, and the activations that it is multiplied with."""
        if role == "vector":
            return Encoding("f32"), "f32"
        # How an image is resized, numbers of the module and not of its training; or what chooses
        # experts, where a rounding would send tokens elsewhere.
        if role in ("mix", "router"):
            return Encoding("matrix_f32"), "f32"
        if role == "adapter":  # small, and trained in floats
            precise = find_scheme(self.name).bits == 32
            return Encoding("matrix_f32" if precise else "matrix_f16"), "f32"
        cols = weight.shape[1]
        override = self.override_of(weight)
        if override:
            scheme, group = override.scheme, override.group
            form = scheme.forms[scheme.bits]
        else:
            scheme, group = find_scheme(self.name), self.group_size
            form = scheme.forms[(self.head_bits if role == "head" else None) or scheme.bits]
        if role == "conv" and scheme.is_quantized:
            return Encoding("matrix_f16"), "f32"  # the float kernels compute it
        choices = sorted(scheme.groups)
        if role == "embedding" and self.embedding and not override:
            bits, group = self.embedding
            form, choices = Form(f"matrix_q{bits}", grouped=True), list(EMBEDDING_GROUPS)
        encoding = form.encoding(group, cols)
        if encoding.group and (cols % encoding.group or encoding.group % 8):
            fitting = [g for g in choices if cols % g == 0]
            advice = f"Use {' or '.join(map(str, fitting))}" if fitting else "Use fp16 or fp32"
            problem = f"the group size {encoding.group} does not divide the {cols} columns of"
            if not cols % encoding.group:
                problem = f"groups are of 8 numbers or a multiple, unlike the {cols} columns of"
            raise RecipeError(f"{problem} {weight.name}", advice + " for this model.")
        return encoding, scheme.activations if override else self.activations


def _check_activations(scheme: Scheme, bits: int | None) -> None:
    if bits is None:
        return
    if scheme.activations == "f32":
        raise RecipeError(f"{scheme.name} does not round activations, so they have no bits")
    if bits not in (8, 16):
        raise RecipeError(f"activations can have 8 or 16 bits, not {bits}")


def apply_recipe(
    graphs: Sequence[Graph], recipe: Recipe, pre_quantized: Mapping[str, Encoding] | None = None
) -> dict[str, Encoding]:
    """Choose each weight's encoding and mark the linear layers that round their activations.

    ``pre_quantized`` has, by tensor, the encodings that the scheme ``keep`` takes over.

    A weight that is both embedding and head (tied) stays one if the recipe gives both the same
    number of bits, in the embedding's groups; otherwise the head becomes a weight of its own with
    the same source.
    """
    matrices = [w.name for graph in graphs for w in graph.weights() if w.role not in FIXED_ROLES]
    check_matches(recipe.overrides, matrices)

    def choose(weight: Weight, role: str) -> tuple[Encoding, str]:
        encoding, activations = recipe.choose(weight, role)
        override = recipe.override_of(weight)
        keeps = (override.scheme.name if override else recipe.name) == KEEP
        keeps = keeps and role not in FIXED_ROLES
        stored = (pre_quantized or {}).get(weight.source.tensor, encoding)
        return stored if keeps else encoding, activations

    encodings: dict[str, Encoding] = {}
    rounding = ops_with(Trait.rounds_input)
    for graph in graphs:
        heads: dict[str, Value] = {}
        for node in graph.nodes:
            for place, value in enumerate(node.inputs):
                if value is None or value.weight is None:
                    continue
                weight = value.weight
                is_tied_head = node.op == "linear" and weight.role == "embedding"
                role = "head" if is_tied_head else weight.role
                encoding, activations = choose(weight, role)
                table = choose(weight, "embedding")[0] if is_tied_head else encoding
                if encoding.is_quantized and encoding.kind == table.kind:
                    encoding = table  # a second copy in other groups would gain nothing
                if encoding != table:
                    if weight.name not in heads:
                        copy = replace(weight, name=f"{weight.name}#head", role="head")
                        heads[weight.name] = Value(copy.name, value.type, weight=copy)
                    node.inputs[place] = heads[weight.name]
                    weight = heads[weight.name].weight or weight
                encodings[weight.name] = encoding
                if node.op in rounding and encoding.is_quantized:
                    node.attrs["activations"] = activations
    return encodings


def store_steps(
    graphs: Sequence[Graph],
    encodings: Mapping[str, Encoding],
    pre_quantized: Mapping[str, Encoding | None],
) -> dict[str, Encoding]:
    """The encodings with scales of 4-bit weights as bytes and steps, for plain rounding.

    Not where that is larger, nor of tensors that have that encoding in the checkpoint
    (``pre_quantized``), whose scales may be any.
    """
    chosen = dict(encodings)
    for weight in (weight for graph in graphs for weight in graph.weights()):
        encoding = encodings[weight.name]
        if encoding != pre_quantized.get(weight.source.tensor):
            chosen[weight.name] = encoding.with_steps(weight.shape)
    return chosen
