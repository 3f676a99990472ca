"""Reading of files with errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from satchel.errors import TokenizerError
from satchel.files import open_regular


def read_bytes(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read()
    except OSError as error:
        raise TokenizerError(
            f"The tokenizer file {path} cannot be read ({error.strerror or error})",
            "Copy it beside the weights from where the model came from",
        ) from None


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{path} is not UTF-8 text (byte {error.start})", "Get the file again, it is damaged"
        ) from None


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one when there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(
            f"{path} is not valid JSON ({error})", "Get the file again, it is damaged"
        ) from None
    if not isinstance(value, dict):
        raise TokenizerError(
            f"{path} does not hold a JSON object", "Get the file again, it is damaged"
        )
    return value
