"""Configurations of ExecuTorch's export_llm as choices of ours.

They come as groups in a YAML file (``base:``, ``model:``, ``quantization:``, ``backend:``,
``export:``) and as ``++group.key=value``, or without the signs, on the command line. Each setting
becomes choices of ours, or is not needed here, or is refused; a line says which.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from satchel.backends import families
from satchel.backends.target import BackendGroup
from satchel.errors import ConfigError

OUTPUT_NAME = "output_name"  # the choice that output_of makes a file's name of
GROUPS = ("base", "model", "quantization", "backend", "export", "debug")
_OVERRIDE = re.compile(rf"\+{{0,2}}((?:{'|'.join(GROUPS)})(?:\.\w+)+)=(.*)", re.DOTALL)

_RENAMED = {
    "base.checkpoint": "checkpoint",
    "base.params": "params",
    "base.tokenizer_path": "tokenizer",
    "base.preq_mode": "preq_mode",
    "quantization.group_size": "group_size",
    "quantization.embedding_quantize": "embedding",
}
_ONLY_ABOVE_0 = {"base.use_lora": "lora_rank"}
_WITH_PREQ = {
    "base.preq_group_size": "preq_group_size",
    "base.preq_embedding_quantize": "preq_embedding",
}
# qmode and pt2e_quantize; "torchao:" in front changes the kernels there, and nothing here.
_PRECISIONS: dict[str, dict[str, Any]] = {
    "8da4w": {"recipe": "8da4w"},
    "8da4w-gptq": {"recipe": "8da4w", "rounding": "gptq"},
    "8da8w": {"recipe": "8a8w"},
    "4w": {"recipe": "8da4w", "activation_bits": 16},
    "fpa4w": {"recipe": "8da4w", "activation_bits": 16},
    "int8": {"recipe": "16a8w"},
    "xnnpack_dynamic": {"recipe": "8a8w"},
}
_NOT_NEEDED = {
    "base.fairseq2": "",
    "model.use_kv_cache": "",
    "model.use_sdpa_with_kv_cache": "",
    "model.enable_dynamic_shape": "",
    "model.expand_rope_table": "",
    "model.use_shared_embedding": "",
    "quantization.use_qat": "",
    "quantization.use_spin_quant": "",
    "export.so_library": "",
    "export.lazy_kv_cache": "",
    "backend.torchao.use_torchao_kernels_linear": "",
    "backend.torchao.use_torchao_kernels_tied_embedding": "",
    "debug.profile_memory": "",
    "debug.profile_path": "",
    "debug.generate_etrecord": "",
    "debug.generate_full_logits": "",
    "debug.verbose": "",
}
_REFUSED = {
    "model.local_global_attention": "a model's windows are those of its configuration",
    "model.output_prune_map": "vocabularies are not pruned",
    "model.input_prune_map": "vocabularies are not pruned",
    "model.use_attention_sink": "a full context slides at run time: --on-context-full slide",
    "export.export_only": "there is no graph file: --plan tells what an export would give",
    "export.foundation_weights_file": "weights are in the program: one file",
    "export.lora_weights_file": "adapters are in the program: --adapter NAME=FOLDER",
}


@dataclass
class Translated:
    """Choices in the words of our YAML files, and what became of each setting."""

    choices: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    not_needed: list[str] = field(default_factory=list)

    def take(self, setting: str, value: Any, **choices: Any) -> None:
        self.choices |= choices
        ours = ", ".join(f"{key}: {_shown(chosen)}" for key, chosen in choices.items())
        self.lines.append(f"{setting}: {_shown(value)} became {ours}")


def is_grouped(document: Mapping[str, Any]) -> bool:
    """Whether a YAML file has ExecuTorch's groups in it."""
    return any(isinstance(document.get(group), dict) for group in GROUPS)


def split_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line without those that override a setting, and these.

    >>> split_overrides(["export", "++export.max_seq_length=128", "-o", "x"])
    (['export', '-o', 'x'], ['++export.max_seq_length=128'])
    """
    overrides = [word for word in words if _OVERRIDE.fullmatch(word)]
    return [word for word in words if not _OVERRIDE.fullmatch(word)], overrides


def why_no_override(word: str) -> str:
    """What is wrong with a word that looks like one that overrides a setting; else nothing.

    >>> why_no_override("++bse.params=x")
    "'++bse.params=x' overrides nothing: there is no group 'bse'; did you mean base?"
    """
    if not word.startswith(("+", "~")):
        return ""
    setting, equals, _ = word.lstrip("+~").partition("=")
    group = setting.partition(".")[0]
    if group not in GROUPS:
        near = difflib.get_close_matches(group, GROUPS, 1)
        meant = f"did you mean {near[0]}?" if near else f"the groups are {', '.join(GROUPS)}"
        return f"{word!r} overrides nothing: there is no group {group!r}; {meant}"
    if word.startswith("~"):
        return f"{word!r} overrides nothing: write ++{setting}=null to leave a setting out"
    if not equals:
        return f"{word!r} has no value: write ++{setting}=VALUE"
    return f"{word!r} overrides nothing: write ++GROUP.SETTING=VALUE"


def indented(document: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose lines lost their indentation, as some pages print them, with it again.

    >>> indented({"model": None, "use_kv_cache": True, "recipe": "fp16"})
    {'model': {'use_kv_cache': True}, 'recipe': 'fp16'}
    """
    found: dict[str, Any] = {}
    known, path = _known_settings(), ""  # of the group that the lines are in
    for key, value in document.items():
        inner = f"{path}.{key}" if path else ""
        if key in GROUPS:
            path = "" if value else str(key)
            found[key] = value if value else {}
        elif path.startswith("backend") and value is None:
            path = f"backend.{key}"
            found["backend"][key] = {}
        elif inner in known:
            place = found
            for group in path.split("."):
                place = place[group]
            place[key] = value
        else:
            found[key] = value
    if len(found.get("backend") or {}) > 1 and document.get("backend") is None:
        raise ConfigError(
            "the configuration has several backends and no indentation",
            "Indent what belongs to each.",
        )
    return found


def override(
    document: Mapping[str, Any], overrides: Iterable[str], read: Callable[[str], Any]
) -> dict[str, Any]:
    """The document with ``++group.key=value`` put into it; ``read`` reads a value of YAML."""
    changed = dict(document)
    for word in overrides:
        match = _OVERRIDE.fullmatch(word)
        assert match is not None
        *groups, key = match[1].split(".")
        place = changed
        for group in groups:
            inner = place.get(group)
            place[group] = dict(inner) if isinstance(inner, dict) else {}
            place = place[group]
        place[key] = read(match[2])
    return changed


def translate(document: Mapping[str, Any], where: str) -> Translated:
    """What the groups of a configuration are in our words. Other keys are left alone.

    >>> translate({"quantization": {"qmode": "8da4w", "group_size": 32}}, "x.yaml").lines[0]
    'quantization.qmode: 8da4w became recipe: 8da4w'
    """
    settings = dict(_flat({group: document.get(group) for group in GROUPS}, ""))
    result = Translated()
    for take in (_base, _precision, _calibration, _backends, _lengths, _output):
        take(settings, result)
    for setting, ours in {**_RENAMED, **_ONLY_ABOVE_0, **_WITH_PREQ}.items():
        value = settings.pop(setting, None)
        if value is None or (setting in _ONLY_ABOVE_0 and not value):
            continue
        if setting in _WITH_PREQ and "preq_mode" not in result.choices:
            result.not_needed.append(setting)
        else:
            result.take(setting, value, **{ours: value})
    refused, not_needed = _refused(), {*_NOT_NEEDED, *_of_backends(lambda group: group.not_needed)}
    for setting, value in settings.items():
        if setting in refused and value:
            raise ConfigError(f"{setting} in {where} has no place here", f"{refused[setting]}.")
        if setting not in refused and setting not in not_needed:
            _unknown(setting, where)
        result.not_needed.append(setting)
    if result.not_needed:
        result.lines.append(f"not needed here: {', '.join(result.not_needed)}")
    return result


def _flat(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict) and not path.endswith(".metadata"):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif value is not None:
        yield path, value


def _base(settings: dict[str, Any], result: Translated) -> None:
    model = settings.pop("base.model_class", None)
    if model is not None:
        result.take("base.model_class", model, source=str(model))
    metadata = settings.pop("base.metadata", None)
    if metadata is not None:
        read = metadata
        while isinstance(read, str):  # a text with JSON in it, which may be quoted once more
            try:
                read = json.loads(read)
            except (ValueError, RecursionError):
                raise ConfigError(f"base.metadata is not JSON: {metadata}") from None
        result.take("base.metadata", metadata, metadata=read)
    adapter = settings.pop("base.lora_config.adapter_checkpoint", None)
    if adapter is not None:
        folder = str(PurePath(str(adapter)).parent)
        result.take("base.lora_config.adapter_checkpoint", adapter, lora=[folder])
    for setting in [name for name in settings if name.startswith("base.lora_config.")]:
        del settings[setting]
        result.not_needed.append(setting)


def _precision(settings: dict[str, Any], result: Translated) -> None:
    dtype = settings.pop("model.dtype_override", None)
    chosen = False
    for setting in ("quantization.qmode", "quantization.pt2e_quantize"):
        value = settings.pop(setting, None)
        if value is None:
            continue
        precision = _precisions().get(str(value).removeprefix("torchao:"))
        if precision is None:
            raise ConfigError(
                f"{setting} {value} has no counterpart here",
                "Choose one with --recipe: fp32, fp16, 16a8w, 8a8w, 16a4w or 8da4w.",
            )
        result.take(setting, value, **precision)
        chosen = True
    if dtype is not None:
        if chosen or settings.get("base.preq_mode"):
            result.not_needed.append("model.dtype_override")
        else:
            result.take("model.dtype_override", dtype, recipe="fp16" if dtype == "fp16" else "fp32")
    cache = settings.pop("model.quantize_kv_cache", None)
    if cache:
        result.take("model.quantize_kv_cache", cache, kv_bits=8)
    elif cache is not None:
        result.not_needed.append("model.quantize_kv_cache")


def _calibration(settings: dict[str, Any], result: Translated) -> None:
    tasks = settings.pop("quantization.calibration_tasks", None)
    words = settings.pop("quantization.calibration_data", None)
    limit = settings.pop("quantization.calibration_limit", None)
    length = settings.pop("quantization.calibration_seq_length", None)
    if tasks is not None:
        listed = [tasks] if isinstance(tasks, str) else list(tasks)
        if len(listed) != 1:
            raise ConfigError(
                f"quantization.calibration_tasks has {len(listed)} tasks", "Choose one of them."
            )
        result.take("quantization.calibration_tasks", tasks, calibrate=f"task:{listed[0]}")
        if words is not None:
            result.not_needed.append("quantization.calibration_data")
    elif words is not None:
        result.take("quantization.calibration_data", words, calibrate=f"prompt:{words}")
    named = {"calibration_limit": limit, "calibration_seq_length": length}
    ours = {"calibration_limit": "calibrate_samples", "calibration_seq_length": "calibrate_length"}
    for name, value in named.items():
        if value is None:
            continue
        if tasks is None:
            result.not_needed.append(f"quantization.{name}")
        else:
            result.take(f"quantization.{name}", value, **{ours[name]: value})


def _groups() -> dict[str, tuple[str, BackendGroup]]:
    """Their backends, each with the family of targets of ours that it is."""
    found: dict[str, tuple[str, BackendGroup]] = {}
    for family, target in families().items():
        if target.backend_group is not None:
            found[target.backend_group.name] = family, target.backend_group
    return found


def _precisions() -> dict[str, Mapping[str, Any]]:
    own = [group.precisions for _, group in _groups().values()]
    return {**_PRECISIONS, **{name: one for precisions in own for name, one in precisions.items()}}


def _backends(settings: dict[str, Any], result: Translated) -> None:
    targets, enabled = [], []
    known = _groups()
    for setting in [s for s in settings if s.startswith("backend.") and s.endswith(".enabled")]:
        backend = setting.split(".")[1]
        family, group = known.get(backend, (backend, BackendGroup(backend)))
        chip = settings.pop(f"backend.{backend}.{group.chip}", group.usual_chip)
        if settings.pop(setting):
            enabled.append(setting)
            targets.append(f"{family}:{group.chip_form.format(chip)}" if chip else family)
            _take_options(settings, result, group)
        else:
            result.not_needed.append(setting)
    if targets:
        result.take(", ".join(enabled), True, target=",".join(targets))
    for group in (group for _, group in known.values()):
        for name in (group.chip, *group.options):  # of what is not enabled
            settings.pop(f"backend.{group.name}.{name}", None)


def _take_options(settings: dict[str, Any], result: Translated, group: BackendGroup) -> None:
    for name, ours in {**group.options, **group.switches}.items():
        setting = f"backend.{group.name}.{name}"
        value = settings.pop(setting, None)
        if value:
            result.take(setting, value, **{ours: True if name in group.switches else value})


def _of_backends(names: Callable[[BackendGroup], Iterable[str]]) -> list[str]:
    groups = [group for _, group in _groups().values()]
    return [f"backend.{group.name}.{name}" for group in groups for name in names(group)]


def _lengths(settings: dict[str, Any], result: Translated) -> None:
    whole = settings.pop("export.max_context_length", None)
    one = settings.pop("export.max_seq_length", None)
    if whole is not None:
        result.take("export.max_context_length", whole, context=whole)
        if one is not None:
            result.not_needed.append("export.max_seq_length")
    elif one is not None:
        result.take("export.max_seq_length", one, context=one)


def _output(settings: dict[str, Any], result: Translated) -> None:
    name = settings.pop("export.output_name", None)
    folder = settings.pop("export.output_dir", None)
    if name is not None:
        path = PurePath(str(name))
        chosen = PurePath(str(folder)) / path if folder is not None else path
        result.choices[OUTPUT_NAME] = str(chosen)  # what it becomes depends on the target
        if folder is not None:
            result.lines.append(f"export.output_dir: {folder} is its folder")
    elif folder is not None:
        result.take("export.output_dir", folder, output=f"{folder}/")


def output_of(name: str, suffix: str) -> str:
    """What export.output_name is for a target that writes files of this kind.

    >>> output_of("artifacts/phi4.pte", ".satchel"), output_of("phi4", ".pte")
    ('artifacts/phi4.satchel', 'phi4.pte')
    """
    path = PurePath(name)
    if path.suffix.startswith(".pt"):
        path = path.with_suffix(suffix)
    return str(path if path.suffix == suffix else path.with_name(path.name + suffix))


def _refused() -> dict[str, str]:
    own = {
        f"backend.{group.name}.{name}": reason
        for _, group in _groups().values()
        for name, reason in group.refused.items()
    }
    return {**_REFUSED, **own}


def _known_settings() -> list[str]:
    known = [*_RENAMED, *_ONLY_ABOVE_0, *_WITH_PREQ, *_NOT_NEEDED, *_refused(), *_TAKEN]
    return known + _of_backends(
        lambda group: (
            *("enabled", *filter(None, [group.chip])),
            *(*group.options, *group.switches, *group.not_needed),
        )
    )


def _unknown(setting: str, where: str) -> None:
    near = difflib.get_close_matches(setting, _known_settings(), 1)
    advice = f"Did you mean {near[0]}?" if near else f"The groups are {', '.join(GROUPS)}."
    raise ConfigError(f"{where} has the unknown setting {setting!r}", advice)


_TAKEN = (
    "base.model_class",
    "base.metadata",
    "base.lora_config.adapter_checkpoint",
    "model.dtype_override",
    "model.quantize_kv_cache",
    "quantization.qmode",
    "quantization.pt2e_quantize",
    "quantization.calibration_tasks",
    "quantization.calibration_limit",
    "quantization.calibration_seq_length",
    "quantization.calibration_data",
    "export.max_seq_length",
    "export.max_context_length",
    "export.output_name",
    "export.output_dir",
)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
