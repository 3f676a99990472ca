"""What can be chosen at export, and the YAML file that may hold the choices."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from satchel.backends import DEFAULT, Target, find_targets, leading_target, target_options
from satchel.errors import ConfigError
from satchel.llm.lookahead.options import LookaheadSizes
from satchel.quantize.overrides import split_override
from satchel.quantize.recipe import Recipe

MODES = ("hybrid", "kv", "lookahead")
PREQ_MODES = ("8da4w", "8da4w_output_8da8w")

_ADAPTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

# What `metadata` may override, and the field of the tokenizer that it sets.
METADATA = {"get_bos_id": "bos_id", "get_eos_ids": "eos_ids"}


@dataclass(frozen=True)
class ExportOptions:
    """Defaults are those of the command line.

    ``hybrid`` programs read a prompt ``prefill_ar_len`` tokens at a time and then go on one token
    at a time; ``kv`` programs only have the latter. ``lookahead`` programs are hybrid ones that
    guess ahead by default, with the sizes ``ngram``, ``window`` and ``gcap``. ``context`` is
    capped by what the model was made for. ``overrides`` gives some layers another scheme:
    ``{"layers.*.mlp.down": "16a8w"}``. ``calibrate`` names a text file, ``prompt:TEXT`` or
    ``task:NAME`` that tells ``rounding`` (plain, search or gptq) what the layers see, of which
    ``calibrate_limit`` tokens are used; ``rotate`` spreads outliers over all channels before
    weights are rounded, ``rotate_online`` also where that takes work at run time.

    ``metadata`` overrides what the checkpoint says of its
    tokens: ``{"get_bos_id": 128000, "get_eos_ids": [128009, 128001]}``. ``lora`` has folders of
    adapters that are added to the weights, ``adapters`` those that are kept apart, by name.
    ``target`` is the name of a chip, a :class:`~satchel.backends.Target` with its own options, or
    several of them: the file then holds the portable methods once, and what each target needs.

    ``preq_mode``, ``preq_group_size``, ``preq_embedding`` and ``lora_rank`` say what a checkpoint
    of Meta's that comes quantised must be like; with ``preq_mode`` it is kept as it is.
    """

    recipe: str | None = None  # None: the target's
    group_size: int | None = None
    embedding: tuple[int, int] | None = None
    head_bits: int | None = None
    kv_bits: int | None = None
    activation_bits: int | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    rounding: str | None = None
    calibrate: str | None = None
    calibrate_limit: int | None = None
    rotate: bool = False
    rotate_online: bool = False
    mode: str = "hybrid"
    prefill_ar_len: int | None = None  # None: the target's
    context: int | None = None  # None: the target's
    ngram: int | None = None
    window: int | None = None
    gcap: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    lora: tuple[str, ...] = ()
    adapters: Mapping[str, str] = field(default_factory=dict)
    preq_mode: str | None = None
    preq_group_size: int | None = None
    preq_embedding: tuple[int, int] | None = None
    lora_rank: int | None = None
    target: str | Target | Sequence[str | Target] = DEFAULT

    def __post_init__(self) -> None:
        self.targets  # noqa: B018  (there are such targets)
        if self.mode not in MODES:
            raise ConfigError(f"there is no mode {self.mode!r}", f"Modes: {', '.join(MODES)}.")
        if self.most_tokens < 2:
            raise ConfigError(
                f"a context of {self.most_tokens} tokens is too short", "Use 2 or more."
            )
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
        if self.calibrate_limit is not None and self.calibrate is None:
            raise ConfigError(
                "calibrate_limit needs something to calibrate on", "Give a text with calibrate."
            )
        if self.calibrate_limit is not None and self.calibrate_limit < 1:
            raise ConfigError(f"calibrate_limit must be above 0, not {self.calibrate_limit}")
        if self.rotate_online and not self.rotate:
            raise ConfigError("rotate_online goes with rotate", "Give both, or neither.")
        check_keys(self.metadata, METADATA, "the metadata")
        _check_ids(self.metadata)
        self.lookahead_sizes()

    @property
    def prefill_tokens(self) -> int:
        """``prefill_ar_len``, or what is usual for the target."""
        if self.prefill_ar_len is not None:
            return self.prefill_ar_len
        return self.chip.usual.prefill_ar_len

    @property
    def most_tokens(self) -> int:
        """``context``, or what is usual for the target."""
        return self.chip.usual.context if self.context is None else self.context

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
            self.kv_bits or self.chip.usual.kv_bits,
            self.overrides,
            activation_bits,
        )


def check_keys(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """A key that nobody knows is an error that names the nearest one that somebody does."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            listed = f"It may have {', '.join(known)}."
            raise ConfigError(
                f"{where} has the unknown key {key!r}",
                f"Did you mean {near[0]!r}?" if near else listed,
            )


def _check_ids(metadata: Mapping[str, Any]) -> None:
    def is_id(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0

    bos, ends = metadata.get("get_bos_id"), metadata.get("get_eos_ids")
    if bos is not None and not is_id(bos):
        raise ConfigError(f"get_bos_id must be a token id, not {bos!r}")
    if ends is not None and not (isinstance(ends, list) and ends and all(map(is_id, ends))):
        raise ConfigError(f"get_eos_ids must be a list of token ids, not {ends!r}")


# What a file may say besides the fields of ExportOptions.
_FILE_KEYS = {"source": str, "output": str}
_TYPES: dict[str, tuple[type, ...]] = {
    "target": (str, list),
    "recipe": (str,),
    "group_size": (int,),
    "embedding": (str, list),
    "head_bits": (int,),
    "kv_bits": (int,),
    "activation_bits": (int,),
    "overrides": (dict, list),
    "rounding": (str,),
    "calibrate": (str,),
    "calibrate_limit": (int,),
    "rotate": (bool,),
    "rotate_online": (bool,),
    "mode": (str,),
    "prefill_ar_len": (int,),
    "context": (int,),
    "ngram": (int,),
    "window": (int,),
    "gcap": (int,),
    "metadata": (dict,),
    "lora": (str, list),
    "adapters": (dict, list),
    "preq_mode": (str,),
    "preq_group_size": (int,),
    "preq_embedding": (str, list),
    "lora_rank": (int,),
    "source": (str,),
    "output": (str,),
}


def parse_embedding(text: str) -> tuple[int, int]:
    """
    >>> parse_embedding("8,0")
    (8, 0)
    """
    parts = text.split(",")
    if len(parts) != 2 or not all(p.strip().isdigit() for p in parts):
        raise ConfigError(f"{text!r} is not BITS,GROUP", "Write for example 4,32 or 8,0.")
    return int(parts[0]), int(parts[1])


def split_adapter(text: str) -> tuple[str, str]:
    """
    >>> split_adapter("fr=./french-lora")
    ('fr', './french-lora')
    """
    name, equals, folder = text.partition("=")
    if not equals or not folder:
        raise ConfigError(f"{text!r} is not NAME=FOLDER", "Write for example fr=./french-lora.")
    check_adapter_name(name)
    return name, folder


def check_adapter_name(name: str) -> None:
    if not _ADAPTER.fullmatch(name) or name == "none":
        raise ConfigError(
            f"{name!r} is not a name for an adapter",
            "Use letters, digits, dots, dashes and underscores; none stands for no adapter.",
        )


def read_options_file(path: str | Path) -> dict[str, Any]:
    """The choices in a YAML file: ``source``, ``output`` and the fields of ExportOptions."""
    import yaml

    class WithoutAliases(yaml.SafeLoader):  # type: ignore[misc]
        """With them, a short file can stand for a document without end."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not supported: write the value again")
            return super().compose_node(parent, index)

    try:
        document = yaml.load(Path(path).read_text(encoding="utf-8"), WithoutAliases)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not YAML: {reason}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must hold keys and values", "For example recipe: 8da4w.")
    choices = {str(key).replace("-", "_"): value for key, value in document.items()}
    own = {f.name: f.metadata["option"].yaml for fs in target_options().values() for f in fs}
    known = {f.name: None for f in fields(ExportOptions)} | _FILE_KEYS | own
    check_keys(choices, known, str(path))
    for key, value in choices.items():
        wanted = own[key] if key in own else _TYPES[key]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            kinds = " or ".join(t.__name__ for t in wanted)
            raise ConfigError(f"{key} in {path} must be {kinds}, not {value!r}")
    for key in ("embedding", "preq_embedding"):
        given = choices.get(key)
        if given is not None:
            text = given if isinstance(given, str) else ",".join(map(str, given))
            choices[key] = parse_embedding(text)
    if "lora" in choices:
        folders = choices["lora"] if isinstance(choices["lora"], list) else [choices["lora"]]
        choices["lora"] = tuple(map(str, folders))
    if isinstance(choices.get("adapters"), list):
        choices["adapters"] = dict(split_adapter(str(item)) for item in choices["adapters"])
    if "overrides" in choices:
        choices["overrides"] = _read_overrides(choices["overrides"], path)
    return choices


def _read_overrides(given: Any, path: str | Path) -> dict[str, str]:
    """Either ``pattern: scheme`` or a list of ``pattern=scheme``, as on the command line."""
    pairs = given.items() if isinstance(given, dict) else [(None, item) for item in given]
    overrides = {}
    for pattern, value in pairs:
        if not isinstance(value, str):
            raise ConfigError(f"overrides in {path} must name schemes, not {value!r}")
        name, scheme = split_override(value) if pattern is None else (str(pattern), value)
        overrides[name] = scheme
    return overrides
