"""From a checkpoint of Whisper's to what the pipeline takes on."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.backends import families, portable_names
from satchel.backends.target import Samples
from satchel.checkpoints.base import Checkpoint, TensorInfo, TokenizerSource
from satchel.checkpoints.overlay import FloatTensor, OverlaidCheckpoint
from satchel.errors import CheckpointError, ConfigError
from satchel.exporter.checkpoint import (
    compiled_tokenizer,
    count_parameters,
    find_checkpoint,
    model_name,
    plain_name,
    prepare_export,
)
from satchel.exporter.checks import check_sizes, check_tensors
from satchel.exporter.options import ExportOptions
from satchel.exporter.pipeline import Errors, Export, Portable
from satchel.exporter.speech_rounding import SpeechRounding
from satchel.exporter.weight_errors import error_by_kind
from satchel.graph.ir import Graph
from satchel.program.about import AboutSpeech
from satchel.progress import Progress, usual_progress
from satchel.quantize.recipe import Recipe, apply_recipe, store_steps
from satchel.quantize.rounding import PLAIN
from satchel.speech.alignment_heads import alignment_heads
from satchel.speech.tokens import Tokens
from satchel.speech.whisper import CONVOLUTIONS, KERNEL, Whisper

WHISPER = "whisper"  # the model_type
# Four bits are for the decoder, whose weights are read for every token: the encoder is bound by
# arithmetic, which they do not make less, and loses more by them. Activations of 16 bits cost the
# decoder little, and it loses more than the encoder by 8; but the keys and values of what is heard
# are made by the encoder's arithmetic.
TOWERS = {
    "8a8w": {
        "decoder.layers.*": "16a8w",
        "decoder.layers.*.encoder_attn.k_proj": "8a8w",
        "decoder.layers.*.encoder_attn.v_proj": "8a8w",
    },
    "8da4w": {"encoder.*": "8a8w"},
    "16a4w": {"encoder.*": "16a8w"},
}
# Tiny and base lose words by four bits in any of these layers (measured in docs/speech.md); in
# larger models most of what four bits gain would be lost by this.
SMALL = 512  # the width up to which a model is one of these
SMALL_TOWERS = {
    "8da4w": dict.fromkeys(
        (
            "decoder.layers.*.self_attn.*",
            "decoder.layers.*.encoder_attn.q_proj",
            "decoder.layers.*.encoder_attn.out_proj",
            "decoder.layers.*.fc*",
        ),
        "16a8w",
    )
}
# With one scale for a whole row of the vocabulary, or four bits, tiny.en writes other words than in
# floats; one for each 32 columns takes little more.
EMBEDDING = dict.fromkeys(("8a8w", "16a8w", "8da4w", "16a4w"), (8, 32))
_ALLOWED = {
    *("recipe", "group_size", "embedding", "head_bits", "kv_bits", "activation_bits", "overrides"),
    *("checkpoint", "params", "tokenizer", "target", "ignore_config"),
    *("calibrate", "calibrate_samples", "rounding"),
}


@dataclass(frozen=True)
class KernelTensor(FloatTensor):
    """A convolution's tensor [out, in, 3] as rows of windows, [out, 3 * in]."""

    base: Checkpoint
    info: TensorInfo

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape[0], KERNEL * self.info.shape[1]

    @property
    def dtype(self) -> str:
        return self.info.dtype

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        kernels = self.base.read(name, rows).transpose(0, 2, 1)
        return np.ascontiguousarray(kernels).reshape(len(kernels), -1)


def open_speech(
    source: str | os.PathLike[str], options: ExportOptions, progress: Progress | None = None
) -> Checkpoint | None:
    """The checkpoint, if it is of a model that hears; of others only headers have been read."""
    _, checkpoint = find_checkpoint(source, options, progress)
    if checkpoint.config.get("model_type") == WHISPER:
        return checkpoint
    checkpoint.close()
    return None


def prepare_any_export(
    source: str | os.PathLike[str], options: ExportOptions, progress: Progress | None = None
) -> Export:
    """A checkpoint's export, of a model that hears or of one that reads."""
    heard = open_speech(source, options, progress)
    if heard is None:
        return prepare_export(source, options, progress)
    return prepare_speech_export(source, heard, options, progress)


def with_speech_recipe(options: ExportOptions) -> ExportOptions:
    """The recipe that is usual for models that hear, where none was chosen."""
    return replace(options, recipe=options.recipe or options.chip.usual.speech_recipe)


def prepare_speech_export(
    source: str | os.PathLike[str],
    checkpoint: Checkpoint,
    options: ExportOptions,
    progress: Progress | None = None,
) -> Export:
    """An export that has been checked: only headers, configuration and tokenizer have been read."""
    _check_options(options)
    name = plain_name if options.checkpoint else model_name
    called = name(source, checkpoint.path)
    options = with_speech_recipe(options)
    check_sizes(checkpoint)
    whole = _with_windows(checkpoint)
    model = Whisper(checkpoint.config)
    recipe = _recipe(options, model)
    heads = alignment_heads(checkpoint.config, checkpoint.generation, called)
    graphs: tuple[Graph, ...] = (
        model.encode(recipe.cache),
        model.decode(recipe.cache),
        model.align(recipe.cache, heads),
    )
    if not all(target.portable for target in options.targets):
        graphs = (*graphs, model.hear(recipe.cache))
    encodings = apply_recipe(graphs, recipe)
    weights = {w.name: w for graph in graphs for w in graph.weights()}
    check_tensors(whole, weights.values(), model.unused_tensors)
    tokenizer = _tokenizer(checkpoint, model.vocab_size)
    rounding = SpeechRounding.of(options, encodings, tokenizer, model)
    if rounding.name == PLAIN:
        forms = {tensor: info.own_encoding for tensor, info in whole.tensors.items()}
        encodings = store_steps(graphs, encodings, forms)
    parameters = count_parameters(whole, {w.source.tensor for w in weights.values()})
    asked = list(map(str, options.make_recipe().overrides))

    description = recipe.describe()
    if rounding.name != PLAIN:
        description += f", rounding {rounding.name}"
    told = progress or usual_progress()

    def describe(errors: Errors) -> AboutSpeech:
        return AboutSpeech(
            satchel_version=version("satchel"),
            name=called,
            architecture=WHISPER,
            parameters=parameters,
            mels=model.mels,
            context=model.context,
            vocab_size=model.vocab_size,
            alignment_heads=[list(pair) for pair in heads],
            recipe={
                "name": recipe.name,
                "group_size": recipe.group_size or None,
                "kv_cache": recipe.cache.name,
                "kept": None,
                "overrides": {o.pattern: o.value for o in recipe.overrides},
                **rounding.describe(),
                "description": description,
            },
            weight_error=error_by_kind(errors),
            provenance={"format": checkpoint.format, "file": checkpoint.path.name},
            tokenizer=tokenizer.to_dict(),
        )

    portable = Portable(
        name=called,
        graphs=graphs,
        encodings=encodings,
        checkpoint=whole,
        recipe=recipe,
        recipe_name=recipe.name,
        description=description,
        choices=tuple(_choices(recipe, asked, rounding.name)),
        parameters=parameters,
        describe=describe,
        context=model.context,
        tokenizer=tokenizer.json.encode(),
        text=compiled_tokenizer(tokenizer),
        samples=Samples(tokenizer, spoken=rounding.sound.spoken if rounding.sound else ()),
        rounder=lambda packer: rounding.rounder(whole, model, packer, told),
        rounding_memory=rounding.memory(model, graphs),
    )
    return Export.of(portable, options.targets, told)


def _check_options(options: ExportOptions) -> None:
    hearing = " or ".join(name for name, family in families().items() if family.hears)
    for target in options.targets:
        if not target.portable and not target.hears:
            raise ConfigError(
                f"{target.name} does not run Whisper",
                f"Export it for {portable_names()}, or {hearing}.",
            )
    for each in fields(ExportOptions):
        value, usual = getattr(options, each.name), each.default
        given = bool(value) if usual not in (None, "hybrid") else value != usual
        if each.name not in _ALLOWED and given:
            raise ConfigError(
                f"{each.name} is for language models, and Whisper is not one",
                f"It takes {', '.join(sorted(_ALLOWED - {'checkpoint', 'params'}))}.",
            )


def _recipe(options: ExportOptions, model: Whisper) -> Recipe:
    """The options' recipe; what it says of no tower by name is the tower's usual one."""
    towers = TOWERS.get(options.recipe_name, {})
    if model.hidden <= SMALL:
        towers = towers | SMALL_TOWERS.get(options.recipe_name, {})
    embedding = options.embedding or EMBEDDING.get(options.recipe_name)
    # The vocabulary that is read is the one that is written.
    head_bits = options.head_bits or (embedding[0] if embedding else None)
    chosen = replace(
        options,
        overrides={**towers, **options.overrides},
        embedding=embedding,
        head_bits=head_bits,
    )
    return chosen.make_recipe()


def _choices(recipe: Recipe, asked: list[str], rounding: str) -> list[str]:
    parts = [f"g{recipe.group_size}"] if recipe.group_size else []
    if recipe.kv_bits != Recipe.named(recipe.name).kv_bits:
        parts.append(f"kv{recipe.kv_bits}")
    parts += ["mixed"] if asked else []
    return [*parts, rounding] if rounding != PLAIN else parts


def _with_windows(checkpoint: Checkpoint) -> Checkpoint:
    names = [f"{name}.weight" for name in CONVOLUTIONS]
    found = {name: checkpoint.tensors.get(name) for name in names}
    for name, info in found.items():
        if info is None or len(info.shape) != 3 or info.shape[2] != KERNEL:
            shape = "is missing" if info is None else f"has the shape {list(info.shape)}"
            raise CheckpointError(
                f"{checkpoint.path}: {name} {shape}", "The checkpoint is no model of Whisper's."
            )
    tensors = {name: KernelTensor(checkpoint, info) for name, info in found.items() if info}
    return OverlaidCheckpoint(checkpoint, tensors)


def _tokenizer(checkpoint: Checkpoint, vocab_size: int) -> Any:
    from satchel.llm.tokenizer import read_tokenizer

    Tokens.of_vocabulary(vocab_size)
    source = checkpoint.tokenizer
    if source is None:
        english = vocab_size == 51864
        file = "gpt2.tiktoken" if english else "multilingual.tiktoken"
        raise CheckpointError(
            f"{checkpoint.path} has no tokenizer in it",
            f"Put openai-whisper's {file} beside it, install that package "
            "(pip install --no-deps openai-whisper), or give the file with --tokenizer.",
        )
    if source.kind == "tiktoken":  # that --tokenizer named
        source = TokenizerSource("whisper", Path(source.path), {"vocab_size": vocab_size})
    return read_tokenizer(source)
