"""Reading the small JSON files beside weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from satchel.errors import CheckpointError
from satchel.files import open_regular


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a missing or damaged file is an error that names it."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            value = json.loads(file.read())
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}", "Fetch the whole checkpoint again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not valid JSON: {error}", "Fetch the file again"
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} does not hold a JSON object", "Fetch the file again")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """As read_json, but a file that does not exist is an empty object."""
    return read_json(path) if path.is_file() else {}


def positive_int(values: dict[str, Any], field: str, where: Path) -> int:
    """A field that has to be a whole number above zero."""
    value = values.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 53:
        shown = repr(value)[:80]
        problem = "is missing" if value is None else f"is {shown}, not a whole number above zero"
        raise CheckpointError(f"{where}: field {field} {problem}", "Fetch the checkpoint again")
    return value
