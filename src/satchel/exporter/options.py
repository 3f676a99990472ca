"""What can be chosen when a checkpoint is exported: the schema of all faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from satchel.backends import DEFAULT, Target, find_targets, leading_target
from satchel.errors import ConfigError
from satchel.exporter.option_values import (
    NAMES,
    check_adapter_name,
    check_metadata,
    parse_embedding,
    split_adapter,
    texts_in,
)
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.options import (
    INTEGER,
    OBJECT,
    POSITIVE,
    SWITCH,
    TEXTS,
    option,
    pairs,
    parsed,
)
from satchel.quantize.overrides import split_override
from satchel.quantize.recipe import Recipe
from satchel.quantize.schemes import find_scheme

MODES = ("hybrid", "kv", "lookahead")
PREQ_MODES = ("8da4w", "8da4w_output_8da8w")

# Titles of the groups in the help of the command line.
FILES = "a checkpoint whose files lie apart"
MODEL = "what to make of the model"
META = "Llama checkpoints of Meta's that come quantised"


@dataclass(frozen=True)
class ExportOptions:
    """Defaults are those of the command line.

    ``hybrid`` programs read a prompt ``prefill_ar_len`` tokens at a time and then go on one token
    at a time; ``kv`` programs only have the latter. ``lookahead`` programs are hybrid ones that
    guess ahead by default, with the sizes ``ngram``, ``window`` and ``gcap``. ``context`` is
    capped by what the model was made for. ``overrides`` gives some layers another scheme:
    ``{"layers.*.mlp.down": "16a8w"}``. ``calibrate`` names a text file, ``prompt:TEXT`` or
    ``task:NAME`` that tells ``rounding`` (plain, search or gptq) what the layers see, of which
    ``calibrate_limit`` tokens are used, or
    ``calibrate_samples`` items of the task or paragraphs of the text, of each the first
    ``calibrate_length`` tokens; ``rotate`` spreads outliers over all channels before
    weights are rounded, ``rotate_online`` also where that takes work at run time.

    ``checkpoint``, ``params`` and ``tokenizer`` are for files that do not lie in one place.

    ``metadata`` overrides what the checkpoint says of its
    tokens: ``{"get_bos_id": 128000, "get_eos_ids": [128009, 128001]}``; other keys go into the
    file as they are. ``lora`` has folders of
    adapters that are added to the weights, ``adapters`` those that are kept apart, by name.
    ``target`` is the name of a chip, a :class:`~satchel.backends.Target` with its own options, or
    several of them: the file then holds the portable methods once, and what each target needs.

    ``preq_mode``, ``preq_group_size``, ``preq_embedding`` and ``lora_rank`` say what a checkpoint
    of Meta's that comes quantised must be like; with ``preq_mode`` it is kept as it is.
    """

    recipe: str | None = option(
        None,
        "fp32, fp16, 16a8w, 8a8w, 16a4w or 8da4w; keep takes what is quantised already as it is "
        "(the target's; cpu: 8da4w); for torchvision:NAME also int8 (the target's; cpu: fp32)",
        metavar="NAME",
        group=MODEL,
        also=("qmode", "quantization-mode"),
    )
    group_size: int | None = option(
        None,
        "weights that share a scale: 32, 64, 128 or 256; with 16a4w 16 to 256 (32)",
        POSITIVE,
        metavar="N",
        group=MODEL,
    )
    embedding: tuple[int, int] | None = option(
        None,
        "bits of the embedding and its group, 0 for a whole row (8,0; 8da4w: 4,GROUP_SIZE)",
        parsed(parse_embedding),
        metavar="BITS,GROUP",
        group=MODEL,
        also=("embedding-quantize",),
    )
    head_bits: int | None = option(
        None, "bits of the output head (8; 8da4w: 4)", INTEGER, choices=(4, 8), group=MODEL
    )
    kv_bits: int | None = option(
        None,
        "bits of the KV cache, with any recipe (16; fp32: 32)",
        INTEGER,
        choices=(8, 16, 32),
        group=MODEL,
    )
    activation_bits: int | None = option(
        None,
        "bits of rounded activations (the recipe's own; keep: 16)",
        INTEGER,
        choices=(8, 16),
        group=MODEL,
    )
    overrides: Mapping[str, str] = option(
        dict,
        "another scheme for some layers: 'layers.*.mlp.down=16a8w', '*.0.*=8da4w:64'; repeatable, "
        "the last that matches counts",
        pairs(split_override),
        flag="override",
        metavar="PATTERN=SCHEME",
        group=MODEL,
    )
    calibrate: str | None = option(
        None,
        "run the float model on a text first, to round what matters best: a UTF-8 file, "
        "prompt:WORDS, built-in, or task:NAME[=FILE] of lm-eval; for torchvision:NAME and models "
        "that look a folder of images, for Whisper one of recordings with NAME.txt beside each",
        metavar="TEXT",
        group=MODEL,
    )
    calibrate_limit: int | None = option(
        None, "its first N tokens (16384), or images (64)", POSITIVE, metavar="N", group=MODEL
    )
    calibrate_samples: int | None = option(
        None,
        "its first N samples instead: items of a task, paragraphs of a text, images, recordings",
        POSITIVE,
        metavar="N",
        group=MODEL,
        also=("calibration-limit",),
    )
    calibrate_length: int | None = option(
        None,
        "the most tokens of a sample that count (256)",
        POSITIVE,
        metavar="N",
        group=MODEL,
        also=("calibration-seq-length",),
    )
    rounding: str | None = option(
        None,
        "plain; search: the best of several scales; gptq: errors made up for by other weights, "
        "needs --calibrate (plain; with --calibrate gptq)",
        choices=("plain", "search", "gptq"),
        group=MODEL,
    )
    rotate: bool = option(
        False,
        "turn the hidden states into a basis without outliers, folded into the weights; a tied "
        "head becomes a weight of its own",
        SWITCH,
        group=MODEL,
    )
    rotate_online: bool = option(
        False,
        "with --rotate: also what the last layer of an MLP reads and, with --kv-bits 8, queries "
        "and keys, which takes some work at run time",
        SWITCH,
        group=MODEL,
    )
    mode: str = option(
        "hybrid",
        "hybrid reads prompts in blocks, kv one token at a time; lookahead is hybrid and guesses "
        "ahead unless told otherwise (hybrid)",
        choices=MODES,
        group=MODEL,
        also=("model-mode",),
    )
    embeddings: bool = option(
        False,
        "the program also takes embeddings in place of tokens, as models that see or hear need",
        SWITCH,
        group=MODEL,
    )
    pooling: str | None = option(
        None,
        "the program also gives a vector for a text, as /v1/embeddings does: the hidden state of "
        "its last token, or the mean of all; of an encoder (--task) also its first, or the maxima",
        choices=("last", "mean", "cls", "max"),
        group=MODEL,
    )
    ngram: int | None = option(
        None, "lookahead: guesses have up to N - 1 tokens (4)", INTEGER, metavar="N", group=MODEL
    )
    window: int | None = option(
        None,
        "lookahead: positions worked on ahead; 0 guesses from the text so far only (4)",
        INTEGER,
        metavar="W",
        group=MODEL,
    )
    gcap: int | None = option(
        None,
        "lookahead: the most guesses verified at once (4)",
        INTEGER,
        metavar="G",
        group=MODEL,
    )
    prefill_ar_len: int | None = option(
        None,
        "hybrid: the most prompt tokens read at once (the target's; cpu: 256)",
        POSITIVE,
        metavar="N",
        group=MODEL,
    )
    context: int | None = option(
        None,
        "the most tokens of prompt and answer together (the target's; cpu: the model's own, as far "
        "as 2 GB of cache reach)",
        POSITIVE,
        metavar="N",
        group=MODEL,
        also=("max-seq-len", "max-seq-length", "max-context-length"),
    )
    metadata: Mapping[str, Any] = option(
        dict,
        """override the checkpoint's tokens: '{"get_bos_id": 1, "get_eos_ids": [2]}'; any other """
        "key is kept for who reads the file",
        OBJECT,
        metavar="JSON",
        group=MODEL,
    )
    lora: tuple[str, ...] = option(
        (),
        "add a LoRA adapter of PEFT's to the weights before they are rounded; repeatable",
        TEXTS,
        metavar="FOLDER",
        group=MODEL,
    )
    adapters: Mapping[str, str] = option(
        dict,
        "keep a LoRA adapter of PEFT's apart, to be chosen with run --adapter; repeatable",
        pairs(split_adapter),
        flag="adapter",
        metavar="NAME=FOLDER",
        group=MODEL,
    )
    ignore_config: tuple[str, ...] = option(
        (),
        "leave out a field of config.json that is not understood; repeatable",
        TEXTS,
        metavar="FIELD",
        group=MODEL,
    )
    preq_mode: str | None = option(
        None,
        "keep the codes, with activations of 8 bits; the output in 4 or 8 bits",
        choices=PREQ_MODES,
        group=META,
    )
    preq_group_size: int | None = option(
        None, "check that groups have this size", POSITIVE, metavar="N", group=META
    )
    preq_embedding: tuple[int, int] | None = option(
        None,
        "check that the embedding is like this (8,0: 8 bits, a scale for each row)",
        parsed(parse_embedding),
        metavar="BITS,GROUP",
        group=META,
        also=("preq-embedding-quantize",),
    )
    lora_rank: int | None = option(
        None, "check that there are adaptors of this rank", POSITIVE, metavar="N", group=META
    )
    target: str | Target | Sequence[str | Target] = option(
        DEFAULT,
        "what to export for: {targets}; several with commas, or repeated (cpu)",
        NAMES,
        metavar="CHIP",
        group=MODEL,
    )

    checkpoint: str | None = option(
        None,
        "the weights, if SOURCE only names the model; a file or a folder",
        metavar="PATH",
        group=FILES,
    )
    params: str | None = option(
        None,
        "its params.json or config.json, if that does not lie beside the weights",
        metavar="FILE",
        group=FILES,
    )
    tokenizer: str | None = option(
        None,
        "its tokenizer.json, tokenizer.model or llama2.c's tokenizer.bin, likewise",
        metavar="FILE",
        also=("tokenizer-model", "tokenizer-path"),
        group=FILES,
    )

    def __post_init__(self) -> None:
        self.targets  # noqa: B018  (there are such targets)
        if self.mode not in MODES:
            raise ConfigError(f"there is no mode {self.mode!r}", f"Modes: {', '.join(MODES)}.")
        if self.context is not None and self.context < 2:
            raise ConfigError(f"a context of {self.context} tokens is too short", "Use 2 or more.")
        if self.prefill_tokens < 2:
            raise ConfigError(
                f"prefill_ar_len must be at least 2, not {self.prefill_tokens}", "Or use mode kv."
            )
        if self.preq_mode not in (None, *PREQ_MODES):
            raise ConfigError(
                f"there is no preq_mode {self.preq_mode!r}", f"Modes: {', '.join(PREQ_MODES)}."
            )
        for name in self.adapters:
            check_adapter_name(name)
        for name in ("calibrate_limit", "calibrate_samples", "calibrate_length"):
            value = getattr(self, name)
            if value is not None and self.calibrate is None:
                raise ConfigError(
                    f"{name} needs something to calibrate on", "Give a text with calibrate."
                )
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be above 0, not {value}")
        if self.rotate_online and not self.rotate:
            raise ConfigError("rotate_online goes with rotate", "Give both, or neither.")
        if self.embeddings and self.rotate:
            raise ConfigError(
                "embeddings from elsewhere do not fit rotated hidden states",
                "Leave out embeddings or rotate.",
            )
        if self.pooling not in (None, "last", "mean"):
            raise ConfigError(
                f"a language model has no pooling {self.pooling}", "It has last and mean."
            )
        if self.pooling and self.rotate:
            raise ConfigError("rotated hidden states are no one's", "Leave out pooling or rotate.")
        for each in fields(self):
            if any("\0" in text for text in texts_in(getattr(self, each.name))):  # no name has one
                raise ConfigError(f"{each.name} has a zero byte in it")
        check_metadata(self.metadata)
        self.lookahead_sizes()

    @property
    def prefill_tokens(self) -> int:
        """``prefill_ar_len``, or what is usual for the target."""
        if self.prefill_ar_len is not None:
            return self.prefill_ar_len
        return self.chip.usual.prefill_ar_len

    def lookahead_sizes(self) -> LookaheadSizes | None:
        """What the program guesses by default; None unless the mode is lookahead."""
        chosen = {name: getattr(self, name) for name in ("ngram", "window", "gcap")}
        given = {name: value for name, value in chosen.items() if value is not None}
        if self.mode == "lookahead":
            return LookaheadSizes(**given)
        if given:
            raise ConfigError(
                f"{next(iter(given))} is for mode lookahead, not {self.mode}",
                "Or give it to satchel run, with any program.",
            )
        return None

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """All targets that the program is made for."""
        return find_targets(self.target)

    @property
    def chip(self) -> Target:
        """The target whose defaults count."""
        return leading_target(self.targets)

    @property
    def recipe_name(self) -> str:
        """The recipe, or the target's usual one."""
        return self.recipe or self.chip.usual.recipe

    def make_recipe(self) -> Recipe:
        name, activation_bits = self.recipe_name, self.activation_bits
        if self.preq_mode and name == "8da4w":  # what the checkpoint is, with its activations
            name, activation_bits = "keep", activation_bits or 8
        return Recipe.named(
            name,
            self.group_size,
            self.embedding,
            self.head_bits,
            self.kv_bits or self.usual_kv_bits(name),
            self.overrides,
            activation_bits,
        )

    def usual_kv_bits(self, recipe: str) -> int | None:
        """What the target gives the KV cache of recipes that round; None: the recipe's own."""
        return self.chip.usual.kv_bits if find_scheme(recipe).activations != "f32" else None
