"""From a checkpoint to what the pipeline takes on: its graphs, encodings and tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel import _native
from satchel.backends import portable_names
from satchel.backends.target import LanguageModelRequest, MethodWish, Samples
from satchel.checkpoints import open_checkpoint
from satchel.checkpoints.base import Checkpoint
from satchel.checkpoints.tokenizer_files import advice_without_tokenizer
from satchel.encodings.encoding import Encoding
from satchel.errors import CheckpointError, ConfigError, TemplateError
from satchel.exporter.adapters import Adapters, add_branches
from satchel.exporter.checks import check_sizes, check_tensors
from satchel.exporter.context import chosen_context, tell_context
from satchel.exporter.hadamard import rotate_inputs
from satchel.exporter.option_values import METADATA
from satchel.exporter.options import ExportOptions
from satchel.exporter.own_head import untie_own_head
from satchel.exporter.pipeline import Errors, Export, Portable
from satchel.exporter.prequantized import (
    PrequantizedTensors,
    check_preq,
    check_prequantized,
    take_columns,
    tell_second_rounding,
)
from satchel.exporter.rotating import rotate
from satchel.exporter.rounding import RoundingPlan
from satchel.exporter.usual import tell_cost, with_usual_recipe
from satchel.exporter.weight_errors import error_by_kind, error_by_layer
from satchel.graph.ir import Graph, Sym
from satchel.llm.sampling import stored_generation
from satchel.models import build_model
from satchel.models.base import Decoder, accept_method
from satchel.models.config import without_fields
from satchel.program.about import AboutLanguageModel
from satchel.program.names import (
    ACCEPT_METHOD,
    EMBED_METHOD,
    EMBEDDED_METHOD,
    HIDDEN_METHOD,
    LOOKAHEAD_METHOD,
    adapted,
)
from satchel.progress import Progress, usual_progress
from satchel.quantize.recipe import Recipe, apply_recipe, store_steps
from satchel.quantize.rotation.plan import HEAD_SUFFIX
from satchel.remarks import remark
from satchel.sources import known_entry, pull
from satchel.vision_language.towers import Tower, describe, split_tower, usual_overrides

if TYPE_CHECKING:
    from satchel.llm.tokenizer_sources.spec import TokenizerSpec


@dataclass(frozen=True)
class OpenedModel:
    """A checkpoint with its adapters, and the model that its configuration says it is."""

    name: str
    path: Path
    options: ExportOptions
    recipe: Recipe
    checkpoint: Checkpoint
    model: Decoder
    adapters: Adapters
    tower: Tower | None = None  # that sees

    @property
    def context(self) -> int:
        """The most tokens of a text."""
        return chosen_context(self.options, self.model, self.recipe.cache)

    @property
    def rotated(self) -> str | None:
        if not self.options.rotate:
            return None
        return "online" if self.options.rotate_online else "folded"


@dataclass(frozen=True)
class EncodedModel:
    """The model's graphs, and how each weight is stored. ``checkpoint`` is rotated if they are."""

    checkpoint: Checkpoint
    wishes: tuple[MethodWish, ...]
    graphs: tuple[Graph, ...]
    encodings: Mapping[str, Encoding]
    prequantized: PrequantizedTensors
    pre_quantized: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class ModelExport(Export):
    """The export of a checkpoint, with what was found out about it."""

    opened: OpenedModel
    tokenizer: TokenizerSpec


def prepare_export(
    source: str | os.PathLike[str], options: ExportOptions, progress: Progress | None = None
) -> ModelExport:
    """An export that has been checked: only headers, configuration and tokenizer have been read.

    >>> prepare_export("tiny-llama", ExportOptions(context=128)).plan().methods[:2]
    ('kv_forward', 'prefill_forward')
    """
    opened = open_model(source, options, progress)
    encoded = encode_model(opened)
    parameters = check_weights(opened, encoded)
    tokenizer = read_tokens(opened)
    rounding = _rounding(opened, encoded, tokenizer)
    tell_cost(opened.recipe, rounding.name, options, parameters)
    encodings = encoded.encodings
    if rounding.is_native:
        forms = {name: tensor.own_encoding for name, tensor in encoded.checkpoint.tensors.items()}
        encodings = store_steps(encoded.graphs, dict(encodings), forms)
    text = rounding.text
    tokens = None if text is None else [t for window in text.windows for t in window]
    merged = [adapter.path for adapter in opened.adapters.merged]
    told = progress or usual_progress()
    portable = Portable(
        name=opened.name,
        graphs=encoded.graphs,
        encodings=encodings,
        checkpoint=encoded.checkpoint,
        recipe=opened.recipe,
        recipe_name=opened.recipe.name,
        description=_description(opened, rounding),
        choices=tuple(_choices(opened, rounding)),
        parameters=parameters,
        describe=lambda errors: _metadata(opened, encoded, parameters, tokenizer, rounding, errors),
        samples=Samples(tokenizer, tokens, text.windows if text and text.apart else ()),
        wishes=encoded.wishes,
        context=opened.context,
        adapters=tuple(opened.adapters.apart),
        tokenizer=tokenizer.json.encode(),
        text=compiled_tokenizer(tokenizer),
        pre_quantized=encoded.pre_quantized,
        rounder=lambda packer: rounding.rounder(
            encoded.checkpoint, opened.model, encoded.graphs, packer, told, merged, opened.tower
        ),
        rounding_memory=rounding.memory(opened.model, encoded.graphs),
    )
    checked = Export.of(portable, options.targets, told)
    return ModelExport(**vars(checked), opened=opened, tokenizer=tokenizer)


def open_model(
    source: str | os.PathLike[str], options: ExportOptions, progress: Progress | None = None
) -> OpenedModel:
    """Fetch a checkpoint if need be, and check it against the options."""
    path, checkpoint = find_checkpoint(source, options, progress)
    checkpoint, tower = split_tower(checkpoint)
    if tower is not None:
        overrides = {**usual_overrides(tower, options.recipe_name), **options.overrides}
        options = replace(options, embeddings=True, overrides=overrides)
    else:
        options = with_usual_recipe(options, checkpoint)
    recipe = options.make_recipe()
    check_preq(checkpoint, options)
    check_prequantized(checkpoint, recipe)
    tell_second_rounding(checkpoint, recipe)
    adapters = Adapters.open(options.lora, options.adapters, checkpoint, recipe, source)
    whole = adapters.over(checkpoint)
    check_sizes(whole)
    untie_own_head(whole)
    model = build_model(without_fields(whole.config, options.ignore_config))
    # With the weights given apart, SOURCE is only a name: llama3_2 may be of any size.
    name = model_name(source, path) if options.checkpoint is None else plain_name(source, path)
    opened = OpenedModel(name, path, options, recipe, whole, model, adapters, tower)
    tell_context(options, model.context, opened.context)
    return opened


def find_checkpoint(
    source: str | os.PathLike[str], options: ExportOptions, progress: Progress | None = None
) -> tuple[Path, Checkpoint]:
    """Fetch a checkpoint if need be, and read its headers."""
    path = pull(options.checkpoint or source, progress)
    return path, open_checkpoint(path, options.params, options.tokenizer)


def encode_model(opened: OpenedModel) -> EncodedModel:
    """Build the methods that the target wants, and choose how their weights are stored."""
    options, recipe, checkpoint = opened.options, opened.recipe, opened.checkpoint
    sizes = options.lookahead_sizes()
    asked = LanguageModelRequest(
        options.mode,
        opened.context,
        options.prefill_tokens,
        sizes.rows if sizes else None,
        options.embeddings,
        options.pooling is not None,
    )
    if options.mode == "kv" and options.prefill_ar_len is not None:
        remark(
            f"In mode kv a prompt is read one token at a time: prefill_ar_len "
            f"{options.prefill_ar_len} is left out."
        )
    wishes = tuple(options.chip.methods(asked))
    if options.embeddings and not any(wish.name == EMBEDDED_METHOD for wish in wishes):
        named = f"{options.chip.name} in {options.mode} mode"
        if opened.tower is not None:
            raise ConfigError(
                f"{named} does not run vision-language models",
                f"Export it for {portable_names()}, in mode hybrid.",
            )
        raise ConfigError(
            f"{named} takes no embeddings",
            "Export with mode hybrid for cpu, or leave out embeddings.",
        )
    if options.pooling and not any(wish.name == HIDDEN_METHOD for wish in wishes):
        raise ConfigError(
            f"{options.chip.name} in {options.mode} mode gives no vectors of texts",
            "Export with mode hybrid for cpu, or leave out pooling.",
        )
    graphs = build_graphs(opened, wishes)
    if options.rotate:
        apart = bool(opened.adapters.apart)
        checkpoint = rotate(graphs, checkpoint, recipe, apart, options.rotate_online)
    prequantized = PrequantizedTensors()
    if recipe.keeps:
        packed_bits = all(target.has_packed_bits for target in options.targets)
        prequantized = PrequantizedTensors.of(checkpoint, packed_bits)
    encodings = apply_recipe(graphs, recipe, prequantized.encodings)
    weights = prequantized.weights(graphs, encodings)
    for graph in graphs:
        take_columns(graph, prequantized.orders, weights)
    return EncodedModel(checkpoint, wishes, tuple(graphs), encodings, prequantized, weights)


def build_graphs(opened: OpenedModel, wishes: Sequence[MethodWish]) -> list[Graph]:
    """All methods of the model, then those of each adapter that is kept apart."""
    model, checkpoint, cache = opened.model, opened.checkpoint, opened.recipe.cache
    graphs = []
    for adapter in (None, *opened.adapters.apart):
        for wish in wishes:
            if wish.name == EMBED_METHOD:
                if not adapter:  # which adapters leave alone
                    graphs.append(model.embed_method(wish.name, wish.tokens))
                continue
            name, tree = adapted(wish.name, adapter), wish.name == LOOKAHEAD_METHOD
            embedded = wish.name == EMBEDDED_METHOD
            hidden = wish.name == HIDDEN_METHOD
            graph = model.method(name, wish.tokens, opened.context, cache, tree, embedded, hidden)
            rotate_inputs(graph, checkpoint.rotated)
            add_branches(graph, checkpoint.branches, checkpoint)
            if adapter:
                add_branches(graph, opened.adapters.branches(adapter), checkpoint)
            graphs.append(graph)
    for wish in wishes:
        if wish.name == LOOKAHEAD_METHOD:
            assert isinstance(wish.tokens, Sym)
            graphs.append(accept_method(ACCEPT_METHOD, wish.tokens, graphs[0].states))
    if opened.tower is not None:
        graphs.append(opened.tower.see())
    return graphs


def check_weights(opened: OpenedModel, encoded: EncodedModel) -> int:
    """Check every tensor's name and shape; the number of the model's parameters."""
    weights = {w.name: w for graph in encoded.graphs for w in graph.weights()}
    unused = (*opened.model.unused_tensors, *(opened.tower.unused_tensors if opened.tower else ()))
    check_tensors(encoded.checkpoint, weights.values(), unused)
    # A head that is its own weight for this export only is no parameter of the model's.
    own = {
        w.source.tensor.removesuffix(HEAD_SUFFIX) for w in weights.values() if w.role != "adapter"
    }
    return count_parameters(encoded.checkpoint, own)


def read_tokens(opened: OpenedModel) -> TokenizerSpec:
    """The checkpoint's tokenizer, with the ends that it and ``metadata`` name."""
    from satchel.llm.tokenizer_sources.fitting import fitting_tokenizer

    checkpoint, size = opened.checkpoint, opened.model.vocab_size
    if checkpoint.tokenizer is None:
        raise CheckpointError(
            f"{opened.path} has no tokenizer", advice_without_tokenizer(checkpoint.path)
        )
    spec = fitting_tokenizer(checkpoint.tokenizer, size)
    spec = replace(spec, eos_ids=_end_tokens(checkpoint, size, spec.eos_ids))
    # What --metadata says counts more than what the checkpoint says.
    for key, name in METADATA.items():
        value = opened.options.metadata.get(key)
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        beyond = [i for i in ids if i >= size]
        if beyond:
            raise ConfigError(f"{key} names the token {beyond[0]}, and there are {size}")
        changed: dict[str, Any] = {name: tuple(ids) if name == "eos_ids" else value}
        spec = replace(spec, **changed)
    return spec


def compiled_tokenizer(tokenizer: TokenizerSpec) -> bytes:
    """The tokenizer as the native core maps it; empty where it lacks something, which is told."""
    from satchel.llm.compiled import NotCompiled, compile_tokenizer

    try:
        section = compile_tokenizer(tokenizer)
        _check_template(tokenizer.chat_template)
        return section
    except NotCompiled as reason:
        remark(
            f"The native tokenizer does not do {reason}: satchel-run and the C API cannot use this "
            "file as a language model; Python can."
        )
        return b""


def _check_template(source: str | None) -> None:
    """Tell if the native engine cannot read a chat template."""
    try:
        if source:
            _native.Template(source)
    except TemplateError as error:
        remark(f"satchel-run and the C API cannot chat with this file; Python may. {error.message}")


def _end_tokens(
    checkpoint: Checkpoint, size: int, tokenizer_ends: Iterable[int]
) -> tuple[int, ...]:
    """The checkpoint's own list first, then what the tokenizer calls its end."""
    ends = checkpoint.generation.get("eos_token_id")
    listed = [] if ends is None else ends if isinstance(ends, list) else [ends]
    if not all(isinstance(e, int) and 0 <= e < size for e in listed):
        raise ConfigError(f"the end tokens {listed} are not in the vocabulary")
    return tuple(dict.fromkeys([*listed, *tokenizer_ends]))


def _rounding(opened: OpenedModel, encoded: EncodedModel, tokenizer: TokenizerSpec) -> RoundingPlan:
    from satchel.llm.tokenizer import Tokenizer

    return RoundingPlan.of(
        opened.options, encoded.encodings, Tokenizer(tokenizer), opened.model, opened.tower
    )


def _description(opened: OpenedModel, rounding: RoundingPlan) -> str:
    parts = [opened.recipe.describe()]
    if rounding.name != "plain":
        parts.append(f"rounding {rounding.name}")
    if opened.rotated:
        parts.append("rotated" + (" online too" if opened.rotated == "online" else ""))
    return ", ".join(parts)


def _choices(opened: OpenedModel, rounding: RoundingPlan) -> Iterator[str]:
    """Every choice that is not the default."""
    options, recipe, adapters = opened.options, opened.recipe, opened.adapters
    usual, target = Recipe.named(recipe.name, recipe.group_size), options.chip.usual
    if recipe.group_size:
        yield f"g{recipe.group_size}"
    if recipe.embedding:
        if recipe.embedding != usual.embedding:
            yield "e{}_{}".format(*recipe.embedding)
        if recipe.head_bits != usual.head_bits:
            yield f"h{recipe.head_bits}"
    if recipe.activation_bits:
        yield f"a{recipe.activation_bits}"
    if recipe.kv_bits != (options.usual_kv_bits(recipe.name) or usual.kv_bits):
        yield f"kv{recipe.kv_bits}"
    if recipe.overrides:
        yield "mixed"
    yield from (adapter.path.name for adapter in adapters.merged)
    if adapters.apart:
        yield "+".join(["with", *adapters.apart])
    if rounding.name != "plain":
        yield rounding.name
    if options.rotate:
        yield "rotated" + ("_online" if options.rotate_online else "")
    if options.mode != "hybrid":
        yield options.mode
    if options.mode != "kv" and options.prefill_tokens != target.prefill_ar_len:
        yield f"ar{min(options.prefill_tokens, opened.context)}"
    if options.context not in (None, target.context):
        yield f"c{opened.context}"


def _metadata(
    opened: OpenedModel,
    encoded: EncodedModel,
    parameters: int,
    tokenizer: TokenizerSpec,
    rounding: RoundingPlan,
    errors: Errors,
) -> AboutLanguageModel:
    options, recipe, checkpoint = opened.options, opened.recipe, encoded.checkpoint
    ar_len = options.prefill_tokens if options.mode != "kv" else None
    lookahead = options.lookahead_sizes()
    return AboutLanguageModel(
        satchel_version=version("satchel"),
        name=opened.name,
        architecture=checkpoint.config["model_type"],
        parameters=parameters,
        context=opened.context,
        mode=options.mode,
        prefill_ar_len=min(ar_len, opened.context) if ar_len else None,
        lookahead=lookahead.to_dict() if lookahead else None,
        vocab_size=opened.model.vocab_size,
        generation=stored_generation(checkpoint.generation),
        recipe={
            "name": recipe.name,
            "group_size": recipe.group_size or None,
            "embedding": list(recipe.embedding) if recipe.embedding else None,
            "head_bits": recipe.head_bits,
            "kv_cache": recipe.cache.name,
            "activation_bits": recipe.activation_bits,
            "kept": encoded.prequantized.describe(),
            **rounding.describe(),
            "rotated": opened.rotated,
            "overrides": {o.pattern: o.value for o in recipe.overrides},
            "description": _description(opened, rounding),
        },
        adapters=list(opened.adapters.apart),
        pooling=options.pooling,
        runner={key: v for key, v in options.metadata.items() if key not in METADATA},
        weight_error=error_by_kind(errors),
        layer_error=error_by_layer(errors),
        provenance={
            "format": checkpoint.format,
            "file": checkpoint.path.name,
            "merged": [adapter.path.name for adapter in opened.adapters.merged],
        },
        tokenizer=tokenizer.to_dict(),
        more={"images": describe(opened.tower)} if opened.tower else {},
    )


def model_name(source: str | os.PathLike[str], path: Path) -> str:
    """A short name for file names: the catalogue's, or from the path or the address."""
    entry = None if Path(source).exists() else known_entry(os.fspath(source))
    return entry.name if entry else plain_name(source, path)


def plain_name(source: str | os.PathLike[str], path: Path) -> str:
    """A short name from the path or the address."""
    text = os.fspath(source)
    if not Path(text).exists():
        address = text.removeprefix("hf:").split("@")[0].split("/")[-1]
        return address.replace(":", "-").lower()  # random:NAME
    path = path.absolute()
    generic = path.name.startswith(("model", "consolidated", "pytorch_model"))
    return (
        path.parent.name
        if path.is_file() and generic
        else path.stem
        if path.is_file()
        else path.name
    )


def count_parameters(checkpoint: Checkpoint, names: Iterable[str]) -> int:
    """Numbers in some of a checkpoint's tensors."""
    total = 0
    for name in names:
        count = 1
        for dim in checkpoint.tensors[name].shape if name in checkpoint.tensors else (0,):
            count *= dim
        total += count
    return total
