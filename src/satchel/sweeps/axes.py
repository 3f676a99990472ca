"""The axes of an experiment's matrix: what may stand on each, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError, SatchelError
from satchel.exporter.options import MODES
from satchel.exporter.options_file import all_options
from satchel.options import check_keys, read_yaml_value
from satchel.runtime.instance import MOST_THREADS
from satchel.runtime.program import Program
from satchel.sources.names import VISION_PREFIX, vision_source
from satchel.sweeps.values import absolute, as_count, as_list, as_name, as_text, in_short

AXES = ("models", "recipes", "targets", "modes", "prompts", "devices", "threads", "peers")
_MODEL_KEYS = ("source", "name", "weights", "classes")
_MODULES = (".onnx", ".pt2")
_AXIS_OF = {"recipe": "recipes", "target": "targets", "mode": "modes"}  # options that are axes
_PROMPT_KEYS = ("tokens", "file", "new_tokens")
USUAL_PROMPT, USUAL_ANSWER = 256, 64


@dataclass(frozen=True)
class Model:
    """What is exported, and what is special about its export."""

    name: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()  # of `satchel export`, for what no YAML file of it can say
    axes: Mapping[str, Any] = field(default_factory=dict)  # that it has in place of the matrix's

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes it another model than another one; its axes do not."""
        return self.source, self.options, self.flags

    @property
    def is_vision(self) -> bool:
        return self.source.startswith(VISION_PREFIX)

    @property
    def is_program(self) -> bool:
        return self.source.endswith(".satchel")

    @property
    def is_language_model(self) -> bool:
        """Whether it reads prompts; what cannot be opened is told when it is planned."""
        if self.is_program:
            try:
                return Program(self.source).is_language_model
            except (SatchelError, OSError):
                return True
        return not self.is_vision and not self.source.endswith(_MODULES)


@dataclass(frozen=True)
class Recipe:
    """A choice of how to round: options of an export, and what it is called in tables."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> Mapping[str, Any]:
        """What makes it another recipe than another one."""
        return self.options


@dataclass(frozen=True)
class Prompt:
    """What a language model reads and how long it answers. Without a file, random tokens."""

    tokens: int = USUAL_PROMPT
    new_tokens: int = USUAL_ANSWER
    file: str | None = None

    @property
    def name(self) -> str:
        """
        >>> Prompt(128, 32).name, Prompt(file="paper:executorch").name
        ('128+32', 'paper:executorch+64')
        """
        what = Path(self.file).name if self.file else str(self.tokens)
        return f"{what}+{self.new_tokens}"


def read_axes(
    given: Any, key: str, folder: Path, where: str, known: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """The axes that an include, or a model, has in place of the matrix's."""
    if not isinstance(given, Mapping):
        advice = "For example {targets: [cpu]}."
        raise ConfigError(f"{key} in {where} must hold axes, not {in_short(given)}", advice)
    check_keys(given, dict.fromkeys(AXES), f"{key} in {where}")
    return {axis: read_axis(axis, value, folder, where, known) for axis, value in given.items()}


def read_axis(
    axis: str, value: Any, folder: Path, where: str, known: Mapping[str, Sequence[Any]]
) -> list[Any]:
    """What stands on an axis, or what usually does. A name that the matrix gives to a model or a
    recipe of its own, which is ``known``, stands for that.
    """
    listed = as_list(value)
    named = {each.name: each for each in known.get(axis, ()) if isinstance(each, (Model, Recipe))}

    def is_named(each: Any) -> bool:
        return isinstance(each, str) and each in named

    if axis == "models":
        return [named[m] if is_named(m) else _model(m, folder, where, known) for m in listed]
    if axis == "recipes":
        found = [named[r] if is_named(r) else _recipe(r, folder, where) for r in listed]
        return found or [Recipe("default")]
    if axis == "prompts":
        return [_prompt(each, folder, where) for each in listed] or [Prompt()]
    if axis == "threads":
        return [_threads(each, where) for each in listed] or [0]
    usual = {"targets": ["cpu"], "modes": ["hybrid"], "devices": ["local"], "peers": []}[axis]
    for each in listed:
        if not isinstance(each, str):
            raise ConfigError(f"{axis} in {where} must be names, not {in_short(each)}")
        if axis == "modes" and each not in MODES:
            raise ConfigError(f"there is no mode {each!r} ({where})", f"Modes: {', '.join(MODES)}.")
    return listed or usual


def _threads(value: Any, where: str) -> int:
    if as_count(value, "threads", where, 0) > MOST_THREADS:
        raise ConfigError(
            f"threads in {where} may be at most {MOST_THREADS}, not {in_short(value)}"
        )
    return int(value)


def _model(given: Any, folder: Path, where: str, shared: Mapping[str, Sequence[Any]]) -> Model:
    if isinstance(given, str):
        given = {"source": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("source"), str):
        raise ConfigError(
            f"a model in {where} must be a name or have a source, not {in_short(given)}",
            "For example {source: hf:ORG/REPO, context: 2048}.",
        )
    known = {**dict.fromkeys(_MODEL_KEYS), **dict.fromkeys(AXES[1:]), **all_options()}
    check_keys(given, known, f"a model in {where}")
    source = given["source"]
    local = folder / Path(source).expanduser()
    if local.exists():
        source = str(local.resolve())
    elif not source.startswith(("hf:", "random:")):
        source = vision_source(source)
    flags = []
    if given.get("weights") == "random":
        flags.append("--random-weights")
    elif given.get("weights"):
        flags += ["--weights", absolute(as_text(given["weights"], "weights", where), folder)]
    if given.get("classes"):
        flags += ["--classes", absolute(as_text(given["classes"], "classes", where), folder)]
    axes = {key: given[key] for key in AXES[1:] if key in given}
    own = {k: v for k, v in given.items() if k not in (*_MODEL_KEYS, *AXES)}
    plain = source.removeprefix("hf:").removeprefix("random:").removeprefix(VISION_PREFIX)
    name = Path(plain).name.removesuffix(".satchel")
    if given.get("name") is not None:
        name = as_name(given["name"], "the name of a model", where)
    own_axes = read_axes(axes, f"the model {name}", folder, where, shared)
    return Model(name, source, export_options(own, folder, where), tuple(flags), own_axes)


def _recipe(given: Any, folder: Path, where: str) -> Recipe:
    """``8da4w``, ``8da4w:64`` with its group size, or options with a name of their own."""
    if isinstance(given, str):
        name, colon, group = given.partition(":")
        if colon and not (group.isascii() and group.isdigit() and len(group) < 10):
            raise ConfigError(f"{given!r} in {where} is no recipe", "Write for example 8da4w:64.")
        options = {"recipe": name} if name != "default" else {}
        return Recipe(given, options | ({"group_size": int(group)} if colon else {}))
    if not isinstance(given, Mapping):
        told = f"must be a name or options, not {in_short(given)}"
        raise ConfigError(f"a recipe in {where} {told}")
    check_keys(given, {"name": None, **all_options()}, f"a recipe in {where}")
    options = {key: value for key, value in given.items() if key != "name"}
    name = " ".join(str(v) if k == "recipe" else f"{k}={v}" for k, v in options.items())
    if given.get("name") is not None:
        name = as_name(given["name"], "the name of a recipe", where)
    return Recipe(name, export_options(options, folder, where, ("recipe",)))


def export_options(given: Any, folder: Path, where: str, own: Sequence[str] = ()) -> dict[str, Any]:
    """Options of an export; paths are made absolute, so that they mean the same anywhere. What is
    an axis of the matrix would be hidden by it, unless it is ``own``.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"export in {where} must hold options, not {in_short(given)}")
    options = all_options()
    check_keys(given, options, f"an export in {where}")
    for key, value in given.items():
        if key in _AXIS_OF and key not in own:
            axis = _AXIS_OF[key]
            told = f"Write {axis}: [{in_short(value).strip(chr(39))}]."
            raise ConfigError(f"{key} in {where} is an axis of the matrix", told)
        read_yaml_value(options[key], value, where)  # refuses what the export itself would
    return {
        key: absolute(value, folder) if isinstance(value, str) else value
        for key, value in given.items()
    }


def _prompt(given: Any, folder: Path, where: str) -> Prompt:
    if isinstance(given, int) and not isinstance(given, bool):
        given = {"tokens": given}
    elif isinstance(given, str):
        given = {"file": given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"a prompt in {where} must be a length or a file, not {in_short(given)}")
    check_keys(given, dict.fromkeys(_PROMPT_KEYS), f"a prompt in {where}")
    file = given.get("file")
    return Prompt(
        as_count(given.get("tokens", USUAL_PROMPT), "tokens", where),
        as_count(given.get("new_tokens", USUAL_ANSWER), "new_tokens", where),
        None if file is None else absolute(as_text(file, "the file of a prompt", where), folder),
    )
