"""The YAML file that may hold the choices of an export."""

from __future__ import annotations

from dataclasses import Field
from pathlib import Path
from typing import Any

from satchel.backends import target_options
from satchel.errors import ConfigError
from satchel.exporter.module_options import ModuleOptions
from satchel.exporter.options import ExportOptions, check_keys
from satchel.options import options_of, read_yaml_value

PLACES = ("source", "output")  # what a file may say besides the options


def all_options() -> dict[str, Field[Any]]:
    """The options of all exports, by name: of checkpoints, of modules, and of the targets."""
    own = [each for listed in target_options().values() for each in listed]
    listed = [*options_of(ExportOptions), *options_of(ModuleOptions), *own]
    return {each.name: each for each in reversed(listed)}  # the first of a name counts


def read_options_file(path: str | Path) -> dict[str, Any]:
    """The choices in a YAML file: ``source``, ``output`` and the options."""
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
    options = all_options()
    check_keys(choices, {**dict.fromkeys(options), **dict.fromkeys(PLACES)}, str(path))
    for key, value in choices.items():
        if key in PLACES and not isinstance(value, str):
            raise ConfigError(f"{key} in {path} must be str, not {value!r}")
        if key in options:
            choices[key] = read_yaml_value(options[key], value, str(path))
    return choices
