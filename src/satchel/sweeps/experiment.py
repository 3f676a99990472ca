"""An experiment as its YAML file tells it: the axes of the matrix, and how cells are measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError
from satchel.exporter.options import MODES
from satchel.exporter.options_file import all_options, read_document
from satchel.options import check_keys
from satchel.runtime.instance import MOST_THREADS
from satchel.sources.names import VISION_PREFIX, vision_source

AXES = ("models", "recipes", "targets", "modes", "prompts", "devices", "threads", "peers")
_SETTINGS = ("runs", "repeats", "warmup", "cool_down", "time_limit")
_KEYS = (*AXES, *_SETTINGS, "name", "export", "speed", "quality", "include", "exclude", "store")
_MODEL_KEYS = ("source", "name", "weights", "classes")
_QUALITY_KEYS = (*("text", "limit", "window", "stride", "phases"), *("tasks", "hellaswag"))
QUALITY_FILES = ("text", "hellaswag")
_COOL_KEYS = ("seconds", "temperature", "at_most")
_PROMPT_KEYS = ("tokens", "file", "new_tokens")
USUAL_PROMPT, USUAL_ANSWER = 256, 64
_LARGEST = 1_000_000_000
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class Model:
    """What is exported, and what is special about its export."""

    name: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()  # of `satchel export`, for what no YAML file of it can say
    axes: Mapping[str, Any] = field(default_factory=dict)  # that it has in place of the matrix's

    @property
    def is_vision(self) -> bool:
        return self.source.startswith(VISION_PREFIX)

    @property
    def is_program(self) -> bool:
        return self.source.endswith(".satchel")


@dataclass(frozen=True)
class Recipe:
    """A choice of how to round: options of an export, and what it is called in tables."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True)
class CoolDown:
    """Rest before a measurement: some seconds, and until the temperature is back."""

    seconds: float = 0.0
    temperature: float | None = None  # degrees above that of the beginning that are near enough
    at_most: float = 300.0


@dataclass(frozen=True)
class Experiment:
    """All that a sweep is told. ``folder`` is where relative paths begin."""

    name: str
    axes: Mapping[str, Sequence[Any]]
    folder: Path = field(default_factory=Path)
    export: Mapping[str, Any] = field(default_factory=dict)
    include: tuple[Mapping[str, Sequence[Any]], ...] = ()
    exclude: tuple[Mapping[str, Sequence[str]], ...] = ()
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)  # as excludes, but to keep
    speed: bool = True
    quality: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 3
    repeats: int = 1
    warmup: int = 1
    cool_down: CoolDown = field(default_factory=CoolDown)
    time_limit: float = 7200.0
    store: str | None = None


def read_experiment(given: str | os.PathLike[str] | Mapping[str, Any]) -> Experiment:
    """An experiment from a YAML file, or from what one would hold.

    >>> read_experiment({"models": ["random:tiny-llama"], "recipes": ["fp16"]}).axes["targets"]
    ['cpu']
    """
    if isinstance(given, Mapping):
        document, where, folder, name = dict(given), "the experiment", Path.cwd(), "experiment"
    else:
        path = Path(given)
        document, where, name = read_document(path), str(path), path.stem
        folder = path.absolute().parent
    check_keys(document, dict.fromkeys(_KEYS), where)
    if not document.get("models"):
        raise ConfigError(f"{where} names no models", "Add models: [smollm2-135m].")
    axes = {axis: _axis(axis, document.get(axis), folder, where) for axis in AXES}
    # What a part of the matrix says is told by the axes' names as well.
    include = [_axes(each, "include", folder, where) for each in _listed(document.get("include"))]
    exclude = [_patterns(each, where) for each in _listed(document.get("exclude"))]
    quality = _quality(document.get("quality") or {}, folder, where)
    speed = document.get("speed", True)
    if not speed and not quality:
        raise ConfigError(f"{where} measures nothing", "Add quality:, or leave out speed: false.")
    return Experiment(
        name=str(document.get("name") or name),
        axes=axes,
        folder=folder,
        export=_options(document.get("export") or {}, folder, where),
        include=tuple(include),
        exclude=tuple(exclude),
        speed=bool(speed),
        quality=quality,
        cool_down=_cool_down(document.get("cool_down"), where),
        store=_text(document["store"], "store", where) if document.get("store") else None,
        runs=_count(document.get("runs", 3), "runs", where),
        repeats=_count(document.get("repeats", 1), "repeats", where),
        warmup=_count(document.get("warmup", 1), "warmup", where, 0),
        time_limit=_number(document.get("time_limit", 7200), "time_limit", where),
    )


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _number(value: Any, key: str, where: str, least: int = 1) -> float:
    """Seconds, degrees: any number."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= _LARGEST
    ):
        raise ConfigError(f"{key} in {where} must be a number from {least} on, not {_short(value)}")
    return float(value)


def _count(value: Any, key: str, where: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        told = f"a whole number from {least} to {_LARGEST:,}"
        raise ConfigError(f"{key} in {where} must be {told}, not {_short(value)}")
    return value


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{key} in {where} must be a text, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    try:
        return repr(value)[:80]
    except ValueError:  # Python does not write down numbers of many thousand digits
        return "a number of many digits"


def _axes(given: Any, key: str, folder: Path, where: str) -> dict[str, list[Any]]:
    """The axes that an include, or a model, has in place of the matrix's."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key} in {where} must hold axes, not {given!r}", "{targets: [cpu]}.")
    check_keys(given, dict.fromkeys(AXES), f"{key} in {where}")
    return {axis: _axis(axis, value, folder, where) for axis, value in given.items()}


def _patterns(given: Any, where: str) -> dict[str, list[str]]:
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(
            f"exclude in {where} must hold axes, not {given!r}", "{models: '*-4b', targets: cpu}."
        )
    check_keys(given, dict.fromkeys(AXES), f"exclude in {where}")
    return {axis: [str(each) for each in _listed(value)] for axis, value in given.items()}


def _axis(axis: str, value: Any, folder: Path, where: str) -> list[Any]:
    listed = _listed(value)
    if axis == "models":
        return [_model(each, folder, where) for each in listed]
    if axis == "recipes":
        return [_recipe(each, folder, where) for each in listed] or [Recipe("default")]
    if axis == "prompts":
        return [_prompt(each, folder, where) for each in listed] or [Prompt()]
    if axis == "threads":
        return [_threads(each, where) for each in listed] or [0]
    usual = {"targets": ["cpu"], "modes": ["hybrid"], "devices": ["local"], "peers": []}[axis]
    for each in listed:
        if not isinstance(each, str):
            raise ConfigError(f"{axis} in {where} must be names, not {each!r}")
        if axis == "modes" and each not in MODES:
            raise ConfigError(f"there is no mode {each!r} ({where})", f"Modes: {', '.join(MODES)}.")
    return listed or usual


def _threads(value: Any, where: str) -> int:
    if _count(value, "threads", where, 0) > MOST_THREADS:
        raise ConfigError(f"threads in {where} may be at most {MOST_THREADS}, not {_short(value)}")
    return int(value)


def _model(given: Any, folder: Path, where: str) -> Model:
    if isinstance(given, str):
        given = {"source": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("source"), str):
        raise ConfigError(
            f"a model in {where} must be a name or have a source, not {given!r}",
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
        flags += ["--weights", _found(_text(given["weights"], "weights", where), folder)]
    if given.get("classes"):
        flags += ["--classes", _found(_text(given["classes"], "classes", where), folder)]
    axes = {key: given[key] for key in AXES[1:] if key in given}
    own = {k: v for k, v in given.items() if k not in (*_MODEL_KEYS, *AXES)}
    plain = source.removeprefix("hf:").removeprefix("random:").removeprefix(VISION_PREFIX)
    name = str(given.get("name") or Path(plain).name.removesuffix(".satchel"))
    own_axes = _axes(axes, f"the model {name}", folder, where)
    return Model(name, source, _options(own, folder, where), tuple(flags), own_axes)


def _recipe(given: Any, folder: Path, where: str) -> Recipe:
    """``8da4w``, ``8da4w:64`` with its group size, or options with a name of their own."""
    if isinstance(given, str):
        name, colon, group = given.partition(":")
        if colon and not (group.isascii() and group.isdigit() and len(group) < 10):
            raise ConfigError(f"{given!r} in {where} is no recipe", "Write for example 8da4w:64.")
        options = {"recipe": name} if name != "default" else {}
        return Recipe(given, options | ({"group_size": int(group)} if colon else {}))
    if not isinstance(given, Mapping):
        raise ConfigError(f"a recipe in {where} must be a name or options, not {given!r}")
    check_keys(given, {"name": None, **all_options()}, f"a recipe in {where}")
    options = {key: value for key, value in given.items() if key != "name"}
    name = given.get("name") or " ".join(
        str(v) if k == "recipe" else f"{k}={v}" for k, v in options.items()
    )
    return Recipe(str(name), _options(options, folder, where))


def _options(given: Mapping[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """Options of an export; paths are made absolute, so that they mean the same anywhere."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"export in {where} must hold options, not {_short(given)}")
    check_keys(given, all_options(), f"an export in {where}")
    return {
        key: _found(value, folder) if isinstance(value, str) else value
        for key, value in given.items()
    }


def _found(name: str, folder: Path) -> str:
    if not name or len(name) > _LONGEST_PATH or "\0" in name:
        return name
    path = folder / name
    try:
        return str(path.resolve()) if path.exists() else name
    except OSError:  # a part of it is longer than names may be
        return name


def _prompt(given: Any, folder: Path, where: str) -> Prompt:
    if isinstance(given, int) and not isinstance(given, bool):
        given = {"tokens": given}
    elif isinstance(given, str):
        given = {"file": given}
    if not isinstance(given, Mapping):
        raise ConfigError(f"a prompt in {where} must be a length or a file, not {given!r}")
    check_keys(given, dict.fromkeys(_PROMPT_KEYS), f"a prompt in {where}")
    file = given.get("file")
    return Prompt(
        _count(given.get("tokens", USUAL_PROMPT), "tokens", where),
        _count(given.get("new_tokens", USUAL_ANSWER), "new_tokens", where),
        None if file is None else _found(_text(file, "the file of a prompt", where), folder),
    )


def _quality(given: Any, folder: Path, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"quality in {where} must hold keys and values", "{text: words.txt}.")
    check_keys(given, dict.fromkeys(_QUALITY_KEYS), f"quality in {where}")
    found = {key: _found(str(v), folder) if key in QUALITY_FILES else v for key, v in given.items()}
    if found and not any(found.get(key) for key in (*QUALITY_FILES, "tasks")):
        raise ConfigError(f"quality in {where} names no text and no task", "Add text: FILE.")
    return found


def _cool_down(given: Any, where: str) -> CoolDown:
    if given is None:
        return CoolDown()
    if not isinstance(given, Mapping):
        return CoolDown(_number(given, "cool_down", where, 0))
    check_keys(given, dict.fromkeys(_COOL_KEYS), f"cool_down in {where}")
    return CoolDown(**{k: _number(v, k, where, 0) for k, v in given.items()})
