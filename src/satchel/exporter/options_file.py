"""The YAML file that may hold the choices of an export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any

from satchel.backends import target_options
from satchel.errors import ConfigError
from satchel.exporter.executorch_config import (
    GROUPS,
    OUTPUT_NAME,
    indented,
    is_grouped,
    override,
    translate,
)
from satchel.exporter.module_options import ModuleOptions
from satchel.exporter.options import ExportOptions
from satchel.options import check_keys, options_of, read_yaml_value

PLACES = ("source", "output")  # what a file may say besides the options


def all_options() -> dict[str, Field[Any]]:
    """The options of all exports, by name: of checkpoints, of modules, and of the targets."""
    own = [each for listed in target_options().values() for each in listed]
    listed = [*options_of(ExportOptions), *options_of(ModuleOptions), *own]
    return {each.name: each for each in reversed(listed)}  # the first of a name counts


def read_options_file(
    path: str | Path | None,
    overrides: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The choices in a YAML file: ``source``, ``output`` and the options.

    One of ExecuTorch's, with ``overrides`` (``++group.key=value``) put into it, becomes ours, and
    ``tell`` is told how; its ``output_name`` is left to be named by what the target writes.
    """
    where = "the command line" if path is None else str(path)
    document = {} if path is None else read_document(Path(path))
    if any(group in document and document[group] is None for group in GROUPS):
        document = indented(document)
    places = dict.fromkeys(PLACES)
    if overrides or is_grouped(document):
        translated = translate(override(document, overrides, _read_value), where)
        for line in translated.lines:
            tell(line)
        own = {key: value for key, value in document.items() if key not in GROUPS}
        document = {**translated.choices, **own}
        places |= {OUTPUT_NAME: None}
    choices = {str(key).replace("-", "_"): value for key, value in document.items()}
    options = all_options()
    check_keys(choices, {**dict.fromkeys(options), **places}, where)
    for key, value in choices.items():
        if key in places and not isinstance(value, str):
            raise ConfigError(f"{key} in {where} must be str, not {value!r}")
        if key in options:
            choices[key] = read_yaml_value(options[key], value, where)
    return choices


def read_document(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    document = _parse(text, str(path))
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must hold keys and values", "For example recipe: 8da4w.")
    return document


def _read_value(text: str) -> Any:
    return _parse(text, f"the value {text!r}")


def _parse(text: str, where: str) -> Any:
    import yaml

    class WithoutAliases(yaml.SafeLoader):  # type: ignore[misc]
        """With them, a short file can stand for a document without end."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not supported: write the value again")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            """Of a key that is written twice, YAML would silently take the second."""
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key.value, str) and key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                if isinstance(key.value, str):
                    seen.add(key.value)
            return dict(super().construct_mapping(node, deep))

    try:
        return yaml.load(text, WithoutAliases)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{where} is not YAML: {_place_and_reason(error)}") from None


def _place_and_reason(error: Exception) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
