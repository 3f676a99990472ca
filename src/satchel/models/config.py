"""Reads a model's configuration field by field, so that no field is overlooked."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from satchel.errors import ConfigError
from satchel.remarks import remark

# Fields that say nothing about what the model computes.
HARMLESS = frozenset(
    """_attn_implementation _name_or_path add_cross_attention architectures attention_dropout
    attn_implementation auto_map bos_token_id cache_implementation chunk_size_feed_forward
    cross_attention_hidden_size decoder_start_token_id dtype eos_token_id finetuning_task
    forced_bos_token_id forced_eos_token_id id2label initializer_range is_decoder
    is_encoder_decoder is_llama_config label2id model_type name_or_path output_attentions
    output_hidden_states output_router_logits pad_token_id prefix pretraining_tp problem_type
    return_dict rope_interleaved router_aux_loss_coef router_jitter_noise router_z_loss_coef
    sep_token_id task_specific_params tie_encoder_decoder tokenizer_class torch_dtype torchscript
    transformers.js_config transformers_version unk_token_id use_cache use_return_dict""".split()
)

# Fields that nobody asked for and that name no computation: how text is sampled, what training or
# some tool left behind. They are ignored, and it is said.
_IDLE = frozenset(
    """bad_words_ids best_of cache_config custom_pipelines diversity_penalty do_sample
    early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty
    gradient_checkpointing length_penalty max_length max_new_tokens max_sequence_length min_length
    min_new_tokens min_p model_max_length model_name no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences num_steps output_scores padding_side parent_model penalty_alpha
    remove_invalid_values repetition_penalty return_dict_in_generate seq_length suppress_tokens
    begin_suppress_tokens temperature top_k top_p tf_legacy_loss typical_p use_bfloat16""".split()
)
_IDLE_NAMES = re.compile(
    r"_.*|.*_?version|.*dropout.*|.*_pdrop|.*drop_rate|unsloth_.*|mlx_.*|.*gradient_checkpointing.*"
    r"|.*flash_attn.*|.*flash_attention.*|.*_init_std|init_std|initializer_.*|.*_init_method"
    r"|.*_impl|.*_implementation|wandb_.*|training_.*"
)

# What Hugging Face calls an activation -> the op, or "relu2", which is two (see base.activated).
# Several names are the tanh formula of GELU.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}


def _finite(number: float) -> bool:
    """Also of whole numbers, which JSON may have of any length."""
    return abs(number) <= sys.float_info.max


def _short(value: Any) -> str:
    """For messages: a file may hold anything, of any length."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


class ConfigReader:
    """Hands out fields and remembers which; ``finish`` names any that nobody asked for.

    >>> fields = ConfigReader({"model_type": "llama", "hidden_size": 64})
    >>> fields.integer("hidden_size")
    64
    >>> fields.finish()
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._asked: set[str] = set()
        self.model_type = str(config.get("model_type", "unknown"))

    def _get(self, name: str, default: Any) -> Any:
        self._asked.add(name)
        value = self._config.get(name)
        if value is not None:
            return value
        if default is None:
            near = difflib.get_close_matches(name, self._config, 1)
            raise ConfigError(
                f"the configuration of this {self.model_type} model has no {name!r}",
                f"Is {near[0]!r} meant?" if near else "Check config.json.",
            )
        return default

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
            raise ConfigError(f"{name!r} must be a whole number, not {_short(value)}")
        return value

    def positive(self, name: str, default: int | None = None) -> int:
        value = self.integer(name, default)
        if value < 1:
            raise ConfigError(f"{name!r} must be at least 1, not {value}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
            raise ConfigError(f"{name!r} must be a number, not {_short(value)}")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{name!r} must be true or false, not {value!r}")
        return value

    def above_zero(self, name: str, default: float | None = None) -> float:
        value = self.number(name, default)
        if value <= 0:
            raise ConfigError(f"{name!r} must be above zero, not {value}")
        return value

    def number_or_off(self, name: str, default: float) -> float:
        """A number that null turns off, which is 0 here: a soft cap, a window."""
        if name in self._config and self._config[name] is None:
            self._asked.add(name)
            return 0.0
        return self.number(name, default)

    def numbers(self, name: str, length: int) -> list[float] | None:
        """A list of so many numbers or more, or None if it is absent or null."""
        value = self.optional(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(x, (int, float)) and _finite(x) for x in value
        ):
            raise ConfigError(f"{name!r} must be a list of numbers, not {_short(value)}")
        if len(value) < length:
            raise ConfigError(f"{name!r} has {len(value)} numbers, and {length} are needed")
        return [float(x) for x in value]

    def activation(self, name: str, default: str) -> str:
        """The op of an activation that the field names as Hugging Face does."""
        return ACTIVATIONS[self.only(name, *dict.fromkeys([default, *ACTIVATIONS]))]

    def optional(self, name: str) -> Any:
        """A field of any kind, or None if it is absent or null."""
        self._asked.add(name)
        return self._config.get(name)

    def only(self, name: str, *allowed: Any) -> Any:
        """A field of which only these values are supported; the first is the default."""
        value = self._get(name, allowed[0])
        if value not in allowed:
            supported = " or ".join(map(repr, allowed))
            raise ConfigError(f"{name!r} is {value!r}, and only {supported} is supported")
        return value

    def finish(self) -> None:
        """Raise ConfigError if a field that may change the model was never asked for."""
        left = sorted(self._config.keys() - self._asked - HARMLESS)
        left = [name for name in left if self._config[name] not in (None, [], {}, "")]
        unknown = [name for name in left if not names_no_computation(name)]
        if unknown:
            raise ConfigError(
                f"the field {unknown[0]!r} of this {self.model_type} model is not understood",
                "Ignoring it could change the results silently; if you know that it does not, "
                f"export with --ignore-config {unknown[0]}.",
            )
        if left:
            remark(f"Ignored in the configuration, as it computes nothing: {', '.join(left)}.")


def names_no_computation(field: str) -> bool:
    """Whether a field that nobody asked for can be left out without changing a number.

    >>> names_no_computation("unsloth_version"), names_no_computation("sliding_window")
    (True, False)
    """
    return field in _IDLE or _IDLE_NAMES.fullmatch(field) is not None


def without_fields(config: Mapping[str, Any], ignored: Iterable[str]) -> dict[str, Any]:
    """A configuration without the fields that someone answers for."""
    missing = [name for name in ignored if name not in config]
    if missing:
        raise ConfigError(
            f"the configuration has no field {missing[0]!r} that could be ignored",
            "Leave out that name.",
        )
    return {name: value for name, value in config.items() if name not in set(ignored)}


def read_windows(
    fields: ConfigReader, layers: int, window: int, slides: Callable[[int], bool]
) -> list[int]:
    """The sliding window of each layer, 0 where a layer sees all tokens before it.

    ``layer_types`` says which layers slide, or in older configurations a rule: ``slides``.
    """
    sliding, full = "sliding_attention", "full_attention"
    types = fields.optional("layer_types")
    if types is None:
        types = [sliding if slides(index) else full for index in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise ConfigError(f"'layer_types' must be a list of {layers} names, one for each layer")
    unknown = [name for name in types if name not in (sliding, full)]
    if unknown:
        raise ConfigError(f"layers of the type {unknown[0]!r} are not supported")
    if sliding in types and window < 1:
        raise ConfigError("'layer_types' has sliding layers, but there is no sliding window")
    return [window if name == sliding else 0 for name in types]
