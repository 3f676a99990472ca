"""Reads the fields of a request: what is unknown is ignored, what is wrong is told by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from satchel.serve.errors import ApiError


def parse_json(body: bytes) -> dict[str, Any]:
    """The object that a request's body is; ApiError if it is none."""
    try:
        document = json.loads(body.decode("utf-8-sig"))  # some on Windows send a mark first
    except UnicodeDecodeError:
        raise ApiError(400, "the body is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deep"
        raise ApiError(400, f"the body is not JSON: {reason}") from None
    if not isinstance(document, dict):
        raise ApiError(400, "the body must be a JSON object")
    return document


class Fields:
    """The fields of a JSON object; null is the same as absent.

    >>> Fields({"n": 2, "unknown": 1}).integer("n", 1, 8, default=1)
    2
    """

    def __init__(self, document: Mapping[str, Any], within: str = "") -> None:
        self.document = document
        self._within = within

    def wrong(self, name: str, what: str) -> ApiError:
        path = f"{self._within}{name}"
        return ApiError(400, f"{path} {what}", param=path)

    def get(self, name: str) -> Any:
        return self.document.get(name)

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "must be a number")
        if not low <= value <= high:  # which no odd float is, and 10^400 can be asked
            raise self.wrong(name, f"must be from {low:g} to {high:g}")
        return value

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int | None:
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, "must be a whole number")
        if not low <= value <= high:
            raise self.wrong(name, f"must be from {low} to {high}")
        return value

    def switch(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "must be a text")
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value is None or value not in allowed:
            raise self.wrong(name, f"must be one of {', '.join(allowed)}")
        return value

    def texts(self, name: str, most: int) -> list[str]:
        """A text or a list of them."""
        value = self.get(name)
        if value is None:
            return []
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(name, "must be a text or a list of texts")
        if len(value) > most:
            raise self.wrong(name, f"may have {most} texts, not {len(value)}")
        if not all(value):
            raise self.wrong(name, "has an empty text")
        return value

    def part(self, name: str) -> Fields | None:
        """An object inside."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "must be an object")
        return Fields(value, f"{self._within}{name}.")

    def parts(self, name: str) -> list[Fields]:
        """A list of objects."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self.wrong(name, "must be a list of objects")
        return [
            Fields(each, f"{self._within}{name}[{number}].") for number, each in enumerate(value)
        ]
