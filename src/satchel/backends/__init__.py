"""Where programs run: one folder for each kind of chip, and one line here.

The folder has a subclass of :class:`~satchel.backends.target.Target`. Other packages bring theirs
with the entry-point group ``satchel.targets``, or call :func:`register`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from satchel.backends.target import Target as Target
from satchel.errors import ConfigError

if TYPE_CHECKING:
    from satchel.runtime.program import Instance, Program

# By what names of targets begin with; a class is loaded when it is asked for.
_PLACES: dict[str, str] = {
    "cpu": "satchel.backends.cpu:CpuTarget",
    "qnn": "satchel.backends.qnn.target:QnnTarget",
}
_GROUP = "satchel.targets"
_loaded: dict[str, type[Target]] = {}

DEFAULT = "cpu"


def register(target: type[Target]) -> None:
    """Make a kind of target known; from here on it can be exported for and run."""
    _loaded[target.family] = target


def families() -> dict[str, type[Target]]:
    """All kinds of targets that are known, those of other packages included."""
    for name in _PLACES:
        _find_family(name)
    for entry in entry_points(group=_GROUP):
        _find_family(entry.name)
    return dict(_loaded)


def _find_family(name: str) -> type[Target] | None:
    if name not in _loaded:
        if name in _PLACES:
            module, _, attribute = _PLACES[name].partition(":")
            _loaded[name] = getattr(import_module(module), attribute)
        else:
            for entry in entry_points(group=_GROUP, name=name):
                _loaded[name] = entry.load()
    return _loaded.get(name)


def find_target(name: str | Target, **options: Any) -> Target:
    """A target by its name, with its own options.

    >>> find_target("cpu").name, find_target("qnn:sm8750", num_sharding=2).name
    ('cpu', 'qnn:SM8750')
    """
    if isinstance(name, Target):
        return name
    family, _, chip = name.partition(":")
    found = _find_family(family)
    if found is None:
        forms = ", ".join(known.form for known in families().values())
        raise ConfigError(f"there is no target {name!r}", f"Targets: {forms}.")
    known = {field.name for field in own_options(found)}
    for option in options:
        if option not in known:
            raise ConfigError(
                f"{option} is for {_with_option(option)}, and the target is {name}",
                "Leave it out, or choose another target.",
            )
    return found.parse(chip, options)


def own_options(family: type[Target]) -> list[Any]:
    """The fields of a kind of target that are options of an export."""
    return [field for field in fields(family) if "option" in field.metadata]


def target_options() -> dict[str, list[Any]]:
    """The options that some targets have, by kind of target."""
    return {name: own for name, family in families().items() if (own := own_options(family))}


def _with_option(option: str) -> str:
    having = [n for n, own in target_options().items() if any(f.name == option for f in own)]
    return " or ".join(having) or "no target"


def target_names(targets: Iterable[Target]) -> str:
    return ", ".join(target.name for target in targets)


def open_instance(program: Program, threads: int = 0, reference: bool = False) -> Instance:
    """A program running on its target; or, with ``reference``, in the reference instead.

    >>> from satchel.runtime.program import Program
    >>> open_instance(Program("model.satchel"), reference=True).kernels
    'reference'
    """
    target = find_target(str(program.metadata.get("target", DEFAULT)))
    return target.open_reference(program) if reference else target.open(program, threads)
