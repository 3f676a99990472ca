"""Where programs run: one folder for each kind of chip, and one line here.

The folder has a subclass of :class:`~satchel.backends.target.Target`. Other packages bring theirs
with the entry-point group ``satchel.targets``, or call :func:`register`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import Field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from satchel.backends.target import PROGRAM
from satchel.backends.target import Target as Target
from satchel.errors import ConfigError
from satchel.options import options_of

if TYPE_CHECKING:
    from satchel.runtime.program import Instance, Program

# By what names of targets begin with; a class is loaded when it is asked for.
_PLACES: dict[str, str] = {
    "cpu": "satchel.backends.cpu:CpuTarget",
    "coreml": "satchel.backends.coreml:CoreMlTarget",
    "executorch": "satchel.backends.executorch:ExecutorchTarget",
    "qnn": "satchel.backends.qnn.target:QnnTarget",
    "vulkan": "satchel.backends.vulkan:VulkanTarget",
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
    for entry in _brought(tuple(sys.path)):
        _find_family(entry.name)
    return dict(_loaded)


@cache
def _brought(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """What other packages bring. Looking at all that is installed takes a while."""
    return tuple(entry_points(group=_GROUP))


def _find_family(name: str) -> type[Target] | None:
    if name not in _loaded:
        if name in _PLACES:
            module, _, attribute = _PLACES[name].partition(":")
            _loaded[name] = getattr(import_module(module), attribute)
        else:
            for entry in _brought(tuple(sys.path)):
                if entry.name == name:
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
        meant = next((f"{one}:{name}" for one in families() if _takes(one, name)), None)
        meant = meant or _family_of_backend(name)
        said = f"Did you mean {meant}? " if meant else ""
        raise ConfigError(f"there is no target {name!r}", f"{said}Targets: {_forms()}.")
    known = _option_names(found, options)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"{option} is for {_with_option(option)}, and the target is {name}",
                "Leave it out, or choose another target.",
            )
    return found.parse(chip, options)


def _option_names(family: type[Target], options: Mapping[str, Any]) -> set[str]:
    """What a family takes, and what the kind of target takes that it becomes by its options."""
    return {field.name for kind in (family, family.kind(options)) for field in options_of(kind)}


def target_options() -> dict[str, list[Field[Any]]]:
    """The options that some targets have, by kind of target."""
    return {name: own for name, family in families().items() if (own := options_of(family))}


def _with_option(option: str) -> str:
    having = [n for n, own in target_options().items() if any(f.name == option for f in own)]
    return " or ".join(sorted(having)) or "no target"


def find_targets(
    names: str | Target | Sequence[str | Target], **options: Any
) -> tuple[Target, ...]:
    """One or several targets; each gets the options that it has, and none may be left over.

    >>> [target.name for target in find_targets("cpu,qnn:SM8750", num_sharding=2)]
    ['cpu', 'qnn:SM8750']
    """
    if isinstance(names, str):
        names = [part.strip() for part in names.split(",")]
    listed = [names] if isinstance(names, Target) else list(names)
    found: dict[str, Target] = {}
    left = dict(options)
    for name in listed:
        family = _find_family(name.partition(":")[0]) if isinstance(name, str) else None
        own = _option_names(family, options) if family else set()
        target = find_target(name, **{k: v for k, v in options.items() if k in own})
        left = {k: v for k, v in left.items() if k not in own}
        if target.name in found:
            raise ConfigError(f"{target.name} is chosen twice", "Name each target once.")
        found[target.name] = target
    if not found:
        raise ConfigError("there is no target", f"Targets: {_forms()}.")
    for option in left:
        named = ", ".join(found)
        raise ConfigError(
            f"{option} is for {_with_option(option)}, and the target is {named}",
            "Leave it out, or choose another target.",
        )
    return tuple(found.values())


def writer_of(path: str | os.PathLike[str]) -> type[Target] | None:
    """The kind of target that writes files named so; None for programs and all others.

    >>> writer_of("model.pte").family, writer_of("model.satchel")
    ('executorch', None)
    """
    suffix = os.path.splitext(os.fspath(path).rstrip("/"))[1]
    if suffix in ("", PROGRAM.suffix):  # nobody has to be asked, which takes a while
        return None
    writing = (each for each in families().values() if each.writes != PROGRAM)
    return next((each for each in writing if each.writes.suffix == suffix), None)


def leading_target(targets: Sequence[Target]) -> Target:
    """The one whose defaults and methods count: that which cannot run just any portable method."""
    return next((target for target in targets if not target.portable), targets[0])


def portable_names() -> str:
    """The targets that run every program, for advice.

    >>> portable_names()
    'cpu or vulkan'
    """
    return " or ".join(name for name, family in families().items() if family.portable)


def title_of(name: str) -> str:
    """A target as tables call it, one that is not known here too.

    >>> title_of("cpu"), title_of("qnn:SM8750"), title_of("other:chip")
    ('CPU', 'QNN SM8750', 'OTHER chip')
    """
    kind, _, chip = name.partition(":")
    family = _find_family(kind)
    return f"{(family and family.title) or kind.upper()} {chip}".rstrip()


def _family_of_backend(name: str) -> str | None:
    """The family of what ExecuTorch calls so."""
    named = {t.backend_group.name: family for family, t in families().items() if t.backend_group}
    return named.get(name.lower())


def _takes(family: str, chip: str) -> bool:
    """Whether a chip that was named alone is one of this family's."""
    try:
        find_target(f"{family}:{chip}")
    except ConfigError:
        return False
    return True


def _forms() -> str:
    return ", ".join(family.form for family in families().values())


def open_instance(program: Program, threads: int = 0, reference: bool = False) -> Instance:
    """A program running on its target; or, with ``reference``, in the reference instead.

    >>> from satchel.runtime.program import Program
    >>> open_instance(Program("model.satchel"), reference=True).kernels
    'reference'
    """
    target = find_target(program.target)
    return target.open_reference(program) if reference else target.open(program, threads)
