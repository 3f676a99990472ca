"""An experiment as its YAML file tells it: the axes of the matrix, and how cells are measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError
from satchel.exporter.options_file import read_document
from satchel.options import check_keys
from satchel.sweeps.axes import AXES, Model, Recipe, export_options, read_axes, read_axis
from satchel.sweeps.values import (
    absolute,
    as_count,
    as_list,
    as_name,
    as_number,
    as_switch,
    as_text,
    in_short,
)

_SETTINGS = ("runs", "repeats", "warmup", "cool_down", "time_limit")
_KEYS = (*AXES, *_SETTINGS, "name", "export", "speed", "quality", "include", "exclude", "store")

QUALITY_FILES = ("text", "hellaswag")
_QUALITY_COUNTS = ("limit", "window", "stride")
_QUALITY_KEYS = (*QUALITY_FILES, *_QUALITY_COUNTS, "phases", "tasks")
_COOL_KEYS = ("seconds", "temperature", "at_most")


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
    axes: dict[str, Any] = {}
    for axis in reversed(AXES):  # recipes come before models, which may have some of them
        axes[axis] = read_axis(axis, document.get(axis), folder, where, axes)
    include = [_include(each, folder, where, axes) for each in as_list(document.get("include"))]
    _check_names(axes, include, where)
    exclude = [_patterns(each, where) for each in as_list(document.get("exclude"))]
    quality = _quality(document.get("quality") or {}, folder, where)
    speed = as_switch(document.get("speed", True), "speed", where)
    if not speed and not quality:
        raise ConfigError(f"{where} measures nothing", "Add quality:, or leave out speed: false.")
    return Experiment(
        name=as_name(document.get("name", name), "name", where),
        axes=axes,
        folder=folder,
        export=export_options(document.get("export") or {}, folder, where),
        include=tuple(include),
        exclude=tuple(exclude),
        speed=speed,
        quality=quality,
        cool_down=_cool_down(document.get("cool_down"), where),
        store=as_text(document["store"], "store", where) if document.get("store") else None,
        runs=as_count(document.get("runs", 3), "runs", where),
        repeats=as_count(document.get("repeats", 1), "repeats", where),
        warmup=as_count(document.get("warmup", 1), "warmup", where, 0),
        time_limit=as_number(document.get("time_limit", 7200), "time_limit", where),
    )


def _check_names(
    axes: Mapping[str, Sequence[Any]], include: Sequence[Mapping[str, Sequence[Any]]], where: str
) -> None:
    """Cells are told apart by names: what is not the same must not be called the same."""
    parts = [axes, *include]
    parts += [model.axes for part in parts for model in part.get("models", ())]
    for axis in ("models", "recipes"):
        meant: dict[str, Model | Recipe] = {}
        for each in (each for part in parts for each in part.get(axis, ())):
            if meant.setdefault(each.name, each).identity != each.identity:
                raise ConfigError(
                    f"two different {axis} in {where} are called {each.name}",
                    "Give one of them another name, such as {name: other, …}.",
                )


def _include(
    given: Any, folder: Path, where: str, axes: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """The axes that it names; they are wanted, whatever a model of the matrix has of its own."""
    named = read_axes(given, "include", folder, where, axes)
    return named | {
        "models": [
            replace(model, axes={a: own for a, own in model.axes.items() if a not in named})
            if any(model is known for known in axes["models"])
            else model
            for model in named.get("models") or axes["models"]
        ]
    }


def _patterns(given: Any, where: str) -> dict[str, list[str]]:
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(
            f"exclude in {where} must hold axes, not {in_short(given)}",
            "For example {models: '*-4b', targets: cpu}.",
        )
    check_keys(given, dict.fromkeys(AXES), f"exclude in {where}")
    return {axis: [str(each) for each in as_list(value)] for axis, value in given.items()}


def _quality(given: Any, folder: Path, where: str) -> dict[str, Any]:
    """As ``satchel eval`` would refuse it, but before anything has been exported."""
    if not isinstance(given, Mapping):
        advice = "For example {text: words.txt}."
        raise ConfigError(f"quality in {where} must hold keys and values", advice)
    check_keys(given, dict.fromkeys(_QUALITY_KEYS), f"quality in {where}")
    chosen: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        if key in QUALITY_FILES:
            chosen[key] = absolute(as_text(value, key, where), folder)
        elif key in _QUALITY_COUNTS:
            chosen[key] = as_count(value, key, where)
        else:
            names = value.split(",") if isinstance(value, str) else as_list(value)
            chosen[key] = [as_text(name, key, where).strip() for name in names]
    if phases := chosen.get("phases"):
        from satchel.eval.phases import check_phases

        check_phases(phases)
    if given and not any(chosen.get(key) for key in (*QUALITY_FILES, "tasks")):
        raise ConfigError(f"quality in {where} names no text and no task", "Add text: FILE.")
    return chosen


def _cool_down(given: Any, where: str) -> CoolDown:
    if given is None:
        return CoolDown()
    if not isinstance(given, Mapping):
        return CoolDown(as_number(given, "cool_down", where, 0))
    check_keys(given, dict.fromkeys(_COOL_KEYS), f"cool_down in {where}")
    return CoolDown(**{k: as_number(v, k, where, 0) for k, v in given.items()})
