"""From a checkpoint to a program file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from satchel.backends.target import (
    CompilePlan,
    Draft,
    LanguageModelRequest,
    MethodWish,
    Samples,
    Target,
)
from satchel.checkpoints import open_checkpoint
from satchel.checkpoints.base import Checkpoint
from satchel.errors import CheckpointError, ConfigError
from satchel.exporter.adapters import Adapters, add_branches
from satchel.exporter.checks import check_free_space, check_tensors
from satchel.exporter.compiled import write_compiled
from satchel.exporter.hadamard import rotate_inputs
from satchel.exporter.kept import KeptTensors, check_preq, check_recipe, take_columns
from satchel.exporter.options import METADATA, ExportOptions
from satchel.exporter.rotating import rotate
from satchel.exporter.rounding import RoundingPlan
from satchel.exporter.weight_errors import error_by_kind, error_by_layer
from satchel.exporter.weights import BLOCK_BYTES, WeightError, WeightPacker
from satchel.files import refuse_existing
from satchel.graph.ir import Graph, Sym
from satchel.llm.sampling import stored_generation
from satchel.machine import cores, current_rss, peak_rss
from satchel.models import build_model
from satchel.models.base import Decoder, accept_method
from satchel.program.names import ACCEPT_METHOD, LOOKAHEAD_METHOD, adapted
from satchel.program.writer import ProgramWriter, encode_metadata
from satchel.quantize.recipe import Recipe, apply_recipe, store_steps
from satchel.quantize.rotation.plan import HEAD_SUFFIX
from satchel.sources import pull
from satchel.sources.progress import Progress, silent

# As long as a real weight error is when written out, for predicting the metadata's size.
_TYPICAL_ERROR = WeightError(squared_error=0.007469, squared_weight=1.0)


@dataclass(frozen=True)
class ExportPlan:
    """What an export will take, known before any weight is read."""

    file_size: int
    peak_memory: int
    weights: int  # how many
    parameters: int
    methods: tuple[str, ...]
    payloads: Mapping[str, CompilePlan] = field(default_factory=dict)  # by target

    def to_dict(self) -> dict[str, Any]:
        return {
            "payloads": {name: dict(plan.document) for name, plan in self.payloads.items()},
            "file_size_bytes": self.file_size,
            "peak_memory_bytes": self.peak_memory,
            "weights": self.weights,
            "parameters": self.parameters,
            "methods": list(self.methods),
        }


class ExportJob:
    """An export that has been checked and can be planned or run.

    Nothing but headers, the configuration and the tokenizer has been read yet.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        options: ExportOptions,
        progress: Progress | None = None,
    ) -> None:
        from satchel.llm.tokenizer import Tokenizer
        from satchel.llm.tokenizer_sources.fitting import fitting_tokenizer

        self.progress = progress or silent
        path = pull(source, progress)
        self.name = model_name(source, path)
        self.options = options
        self.recipe: Recipe = options.make_recipe()
        self.checkpoint: Checkpoint = open_checkpoint(path)
        check_preq(self.checkpoint, options)
        check_recipe(self.checkpoint, self.recipe)
        self.adapters = Adapters.open(
            options.lora, options.adapters, self.checkpoint, self.recipe, source
        )
        self.checkpoint = self.adapters.over(self.checkpoint)
        self.model: Decoder = build_model(self.checkpoint.config)
        self.context = min(options.most_tokens, self.model.context)
        sizes = options.lookahead_sizes()
        asked = LanguageModelRequest(
            options.mode, self.context, options.prefill_tokens, sizes.rows if sizes else None
        )
        self.wishes = tuple(options.chip.methods(asked))
        self.graphs = self._graphs(self.wishes)
        if options.rotate:
            apart = bool(self.adapters.apart)
            self.checkpoint = rotate(
                self.graphs, self.checkpoint, self.recipe, apart, options.rotate_online
            )
        self.kept = KeptTensors.of(self.checkpoint) if self.recipe.keeps else KeptTensors()
        self.encodings = apply_recipe(self.graphs, self.recipe, self.kept.encodings)
        self.kept_weights = self.kept.weights(self.graphs, self.encodings)
        for graph in self.graphs:
            take_columns(graph, self.kept.orders, self.kept_weights)
        placed = options.chip.place(self.graphs)
        self.graphs, self.placement = list(placed.graphs), placed.to_dict()
        weights = {w.name: w for g in self.graphs for w in g.weights()}
        # A head that is its own weight for this export only is no parameter of the model's.
        own = {
            w.source.tensor.removesuffix(HEAD_SUFFIX)
            for w in weights.values()
            if w.role != "adapter"
        }
        self.parameters = _parameters(self.checkpoint, own)
        check_tensors(self.checkpoint, weights.values(), self.model.unused_tensors)
        if self.checkpoint.tokenizer is None:
            raise CheckpointError(
                f"{path} has no tokenizer",
                "Put tokenizer.json or tokenizer.model beside the weights.",
            )
        spec = fitting_tokenizer(self.checkpoint.tokenizer, self.model.vocab_size)
        self.tokenizer = replace(spec, eos_ids=self._end_tokens(spec.eos_ids))
        self._override_tokens(options.metadata)
        self.generation = stored_generation(self.checkpoint.generation)
        self.rounding = RoundingPlan.of(
            options, self.encodings, Tokenizer(self.tokenizer), self.model
        )
        if self.rounding.name == "plain":
            forms = {name: tensor.kept for name, tensor in self.checkpoint.tensors.items()}
            self.encodings = store_steps(self.graphs, self.encodings, forms)
        self.writer = ProgramWriter(self.graphs, self.encodings, self.tokenizer.json.encode())
        self.compilation = options.chip.prepare(self._draft())
        if self.compilation and self.compilation.graphs:
            self.graphs += self.compilation.graphs
            self.writer = ProgramWriter(self.graphs, self.encodings, self.writer.tokenizer)
        temporary = {wish.name for wish in self.wishes if wish.temporary}
        self.kept_graphs = [g for g in self.graphs if g.name.partition(".")[0] not in temporary]

    def _draft(self) -> Draft:
        text = self.rounding.text
        tokens = None if text is None else [t for window in text.windows for t in window]
        return Draft(
            tuple(self.graphs),
            self.wishes,
            self.encodings,
            {w.value.name: w.codes_size + w.scales_size for w in self.writer.weights},
            self.recipe,
            self.recipe.name,
            self.context,
            tuple(self.adapters.apart),
            Samples(self.tokenizer, tokens),
        )

    def _graphs(self, wishes: Sequence[MethodWish]) -> list[Graph]:
        """All methods of the model, then those of each adapter that is kept apart."""
        graphs = []
        for adapter in (None, *self.adapters.apart):
            for wish in wishes:
                name, tree = adapted(wish.name, adapter), wish.name == LOOKAHEAD_METHOD
                graph = self.model.method(name, wish.tokens, self.context, self.recipe.cache, tree)
                rotate_inputs(graph, self.checkpoint.rotated)
                add_branches(graph, self.checkpoint.branches, self.checkpoint)
                if adapter:
                    add_branches(graph, self.adapters.branches(adapter), self.checkpoint)
                graphs.append(graph)
        for wish in wishes:
            if wish.name == LOOKAHEAD_METHOD:
                assert isinstance(wish.tokens, Sym)
                graphs.append(accept_method(ACCEPT_METHOD, wish.tokens, graphs[0].states))
        return graphs

    def _end_tokens(self, tokenizer_ends: Iterable[int]) -> tuple[int, ...]:
        """The checkpoint's own list first, then what the tokenizer calls its end."""
        ends = self.checkpoint.generation.get("eos_token_id")
        listed = [] if ends is None else ends if isinstance(ends, list) else [ends]
        if not all(isinstance(e, int) and 0 <= e < self.model.vocab_size for e in listed):
            raise ConfigError(f"the end tokens {listed} are not in the vocabulary")
        return tuple(dict.fromkeys([*listed, *tokenizer_ends]))

    def _override_tokens(self, metadata: Mapping[str, Any]) -> None:
        """What --metadata says counts more than what the checkpoint says."""
        for key, name in METADATA.items():
            value = metadata.get(key)
            if value is None:
                continue
            ids = value if isinstance(value, list) else [value]
            beyond = [i for i in ids if i >= self.model.vocab_size]
            if beyond:
                raise ConfigError(
                    f"{key} names the token {beyond[0]}, and there are {self.model.vocab_size}"
                )
            if name == "eos_ids":
                self.tokenizer = replace(self.tokenizer, eos_ids=tuple(ids))
            else:
                self.tokenizer = replace(self.tokenizer, bos_id=value)

    @property
    def description(self) -> str:
        """The recipe and what else was chosen for the weights, in one line."""
        parts = [self.recipe.describe()]
        if self.rounding.name != "plain":
            parts.append(f"rounding {self.rounding.name}")
        if self._rotated:
            parts.append("rotated" + (" online too" if self._rotated == "online" else ""))
        return ", ".join(parts)

    @property
    def _rotated(self) -> str | None:
        if not self.options.rotate:
            return None
        return "online" if self.options.rotate_online else "folded"

    @property
    def default_output(self) -> Path:
        """Tells model, target, recipe, and every choice that is not the default."""
        parts = [self.name, target_name(self.options), self.recipe.name]
        return Path("-".join([*parts, *self._choices()]) + ".satchel")

    def _choices(self) -> Iterator[str]:
        options, recipe = self.options, self.recipe
        usual = Recipe.named(recipe.name, recipe.group_size)
        if recipe.group_size:
            yield f"g{recipe.group_size}"
        if recipe.embedding:
            if recipe.embedding != usual.embedding:
                yield "e{}_{}".format(*recipe.embedding)
            if recipe.head_bits != usual.head_bits:
                yield f"h{recipe.head_bits}"
        if recipe.activation_bits:
            yield f"a{recipe.activation_bits}"
        if recipe.kv_bits != (options.chip.usual.kv_bits or usual.kv_bits):
            yield f"kv{recipe.kv_bits}"
        if recipe.overrides:
            yield "mixed"
        yield from (adapter.path.name for adapter in self.adapters.merged)
        if self.adapters.apart:
            yield "+".join(["with", *self.adapters.apart])
        if self.rounding.name != "plain":
            yield self.rounding.name
        if options.rotate:
            yield "rotated" + ("_online" if options.rotate_online else "")
        if options.mode != "hybrid":
            yield options.mode
        if options.mode != "kv" and options.prefill_tokens != options.chip.usual.prefill_ar_len:
            yield f"ar{options.prefill_tokens}"
        if options.most_tokens != options.chip.usual.context:
            yield f"c{options.most_tokens}"
        yield from options.chip.choices()

    def plan(self) -> ExportPlan:
        """File size and peak memory, from shapes alone."""
        names = [w.value.name for w in self.writer.weights if w.encoding.is_matrix]
        metadata = encode_metadata(self._metadata(dict.fromkeys(names, _TYPICAL_ERROR)))
        file_size = self.writer.file_size(len(metadata))
        # A block being packed, the next one being read and decoded, the codes, and all scales of
        # the weight that has most of them (they are written after its codes).
        blocks = 7 * BLOCK_BYTES // 2
        scales = max((w.scales_size for w in self.writer.weights), default=0)
        more = self.rounding.memory(self.model, self.graphs)
        peak = max(peak_rss(), current_rss() + blocks + scales + more)
        payloads = {}
        if self.compilation:
            plan = payloads[self.options.chip.name] = self.compilation.plan()
            file_size += plan.payload_bytes
            peak = max(peak, plan.peak_memory)
        methods = tuple(g.name for g in self.kept_graphs)
        weights = len(self.writer.weights)
        return ExportPlan(file_size, peak, weights, self.parameters, methods, payloads)

    def run(self, output: Path, overwrite: bool = False, threads: int = 0) -> Path:
        """Write the program. Nothing is left behind if it fails or is interrupted."""
        refuse_existing(output, overwrite)
        plan = self.plan()
        check_free_space(output.absolute().parent, plan.file_size)
        if self.compilation:
            write_compiled(
                self.options.chip.name,
                self.compilation,
                lambda base: self._write(base, threads),
                lambda files: ProgramWriter(
                    self.kept_graphs, self.encodings, self.writer.tokenizer, files
                ),
                output,
                overwrite,
                self.progress,
            )
        else:
            self._write(output, threads, overwrite)
        self.checkpoint.close()
        return output

    def _write(self, output: Path, threads: int, overwrite: bool = False) -> None:
        writer = self.writer
        packer = WeightPacker(self.checkpoint, threads or cores(), self.kept_weights)
        merged = [adapter.path for adapter in self.adapters.merged]
        packer.rounder = self.rounding.rounder(
            self.checkpoint, self.model, self.graphs, packer, self.progress, merged
        )
        total = writer.weights_size
        done = 0

        def encode(weight: Any, encoding: Any) -> Any:
            nonlocal done
            for block in packer.encode(weight, encoding):
                yield block
                done += len(block)
                self.progress(f"Packing {self.name}", done, total)

        def metadata() -> dict[str, Any]:
            return self._metadata(packer.errors)

        writer.write(output, encode, metadata, overwrite)
        self.progress(f"Packing {self.name}", total, total)

    def _metadata(self, errors: Mapping[str, WeightError]) -> dict[str, Any]:
        ar_len = self.options.prefill_tokens if self.options.mode != "kv" else None
        lookahead = self.options.lookahead_sizes()
        embedding = self.recipe.embedding
        return {
            "satchel_version": version("satchel"),
            "kind": "llm",
            "name": self.name,
            "architecture": self.checkpoint.config["model_type"],
            "parameters": self.parameters,
            "target": self.options.chip.name,
            "context": self.context,
            "mode": self.options.mode,
            "prefill_ar_len": min(ar_len, self.context) if ar_len else None,
            "lookahead": lookahead.to_dict() if lookahead else None,
            "vocab_size": self.model.vocab_size,
            "generation": self.generation,
            "recipe": {
                "name": self.recipe.name,
                "group_size": self.recipe.group_size or None,
                "embedding": list(embedding) if embedding else None,
                "head_bits": self.recipe.head_bits,
                "kv_cache": self.recipe.cache.name,
                "activation_bits": self.recipe.activation_bits,
                "kept": self.kept.describe(),
                **self.rounding.describe(),
                "rotated": self._rotated,
                "overrides": {o.pattern: o.value for o in self.recipe.overrides},
                "description": self.description,
            },
            "adapters": list(self.adapters.apart),
            "placement": self.placement,
            "weight_error": error_by_kind(errors),
            "layer_error": error_by_layer(errors),
            "provenance": {
                "format": self.checkpoint.format,
                "file": self.checkpoint.path.name,
                "merged": [adapter.path.name for adapter in self.adapters.merged],
            },
            "tokenizer": self.tokenizer.to_dict(),
        }


def target_name(options: ExportOptions) -> str:
    """A target as a part of file names.

    >>> target_name(ExportOptions(target="qnn:SM8750"))
    'qnn-SM8750'
    """
    return options.chip.name.replace(":", "-")


def model_name(source: str | os.PathLike[str], path: Path) -> str:
    """A short name for file names: the catalogue's, or from the path."""
    text = os.fspath(source)
    if not Path(text).exists():
        return text.removeprefix("hf:").split("@")[0].split("/")[-1].lower()
    path = path.absolute()
    generic = path.name.startswith(("model", "consolidated", "pytorch_model"))
    return (
        path.parent.name
        if path.is_file() and generic
        else path.stem
        if path.is_file()
        else path.name
    )


def _parameters(checkpoint: Checkpoint, names: Iterable[str]) -> int:
    total = 0
    for name in names:
        count = 1
        for dim in checkpoint.tensors[name].shape if name in checkpoint.tensors else (0,):
            count *= dim
        total += count
    return total


def export(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    target: str | Target = "cpu",
    recipe: str | None = None,
    group_size: int | None = None,
    embedding: tuple[int, int] | None = None,
    head_bits: int | None = None,
    kv_bits: int | None = None,
    activation_bits: int | None = None,
    overrides: Mapping[str, str] | None = None,
    rounding: str | None = None,
    calibrate: str | None = None,
    calibrate_limit: int | None = None,
    rotate: bool = False,
    rotate_online: bool = False,
    mode: str = "hybrid",
    prefill_ar_len: int | None = None,
    context: int | None = None,
    ngram: int | None = None,
    window: int | None = None,
    gcap: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    lora: Sequence[str | os.PathLike[str]] = (),
    adapters: Mapping[str, str | os.PathLike[str]] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Export a checkpoint (a path, a name that ``satchel models`` lists, or ``hf:ORG/REPO``).

    Returns the program's path, by default one that tells model, target and recipe.

    >>> export("tiny-llama", recipe="8da4w", group_size=32, context=128)
    PosixPath('tiny-llama-cpu-8da4w-g32-c128.satchel')
    """
    options = ExportOptions(
        target=target,
        recipe=recipe,
        group_size=group_size,
        embedding=embedding,
        head_bits=head_bits,
        kv_bits=kv_bits,
        activation_bits=activation_bits,
        overrides=overrides or {},
        rounding=rounding,
        calibrate=calibrate,
        calibrate_limit=calibrate_limit,
        rotate=rotate,
        rotate_online=rotate_online,
        mode=mode,
        prefill_ar_len=prefill_ar_len,
        context=context,
        ngram=ngram,
        window=window,
        gcap=gcap,
        metadata=metadata or {},
        lora=tuple(os.fspath(folder) for folder in lora),
        adapters={name: os.fspath(folder) for name, folder in (adapters or {}).items()},
    )
    job = ExportJob(source, options, progress)
    return job.run(Path(output) if output else job.default_output, overwrite, threads)
