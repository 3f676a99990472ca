"""What templates may call, each so that its result cannot be much larger than what it is given.

Everything else is refused: the lists are of what is known to be harmless, not of what is not.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

import jinja2
from jinja2 import filters
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Cycler, Joiner, Namespace

from satchel.llm.template_budget import budget

_WIDEST = 1000  # of a number in a format, an indentation
_FILTERS = """abs attr batch capitalize center count d default dictsort e escape filesizeformat
    first float forceescape format groupby indent int items join last length list lower map max
    min reject rejectattr replace reverse round safe select selectattr slice sort string sum title
    trim truncate unique upper urlencode wordcount""".split()
# Methods of JSON's types; those of texts that need a closer look are in _METHODS.
_SAFE_METHODS = {
    str: """capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit
        isidentifier islower isnumeric isprintable isspace istitle isupper lower lstrip partition
        removeprefix removesuffix rfind rindex rpartition rsplit rstrip split splitlines startswith
        strip swapcase title upper center ljust rjust zfill expandtabs replace join""".split(),
    dict: ["get", "items", "keys", "values", "copy"],
    list: ["index", "count", "copy"],
    tuple: ["index", "count"],
    range: ["index", "count"],
    int: ["bit_length", "is_integer"],
    float: ["is_integer"],
    LoopContext: ["cycle", "changed"],
    Cycler: ["next", "reset"],
}


def call_method(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """A method of one of JSON's types, or of a loop."""
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if not any(isinstance(owner, kind) and name in names for kind, names in _SAFE_METHODS.items()):
        raise SecurityError(f"a template cannot call {name or type(method).__name__!r}")
    if isinstance(owner, str) and name in _METHODS:
        _METHODS[name](owner, *args, **named)
    return method(*args, **named)


# --- Before a method or filter of a text is called: how large will its result be? ---


def _check_width(text: str, width: int = 0, *_: Any, **__: Any) -> None:
    budget().allow(max(len(text), operator.index(width)))


def _check_tabs(text: str, tabsize: int = 8) -> None:
    budget().allow(len(text) + text.count("\t") * operator.index(tabsize))


def _check_join(separator: str, items: Any = (), *_: Any, **__: Any) -> None:
    if hasattr(items, "__len__"):  # or it fails
        budget().allow(len(separator) * len(items) + budget().weigh(items))


def _check_replace(text: str, old: str = "", new: str = "", count: int | None = None) -> None:
    times = text.count(old) if old else len(text) + 1
    budget().allow(len(text) + times * len(new))


def _check_characters(text: str, characters: str | None = None, *_: Any, **__: Any) -> None:
    # These take as long as both texts multiplied, where it comes to the worst.
    if characters is not None and len(characters) > _WIDEST:
        raise SecurityError("a text to look for is too long")


def _check_indent(text: str, width: int | str = 4, *_: Any, **__: Any) -> None:
    size = len(width) if isinstance(width, str) else operator.index(width)
    budget().allow(len(text) + (text.count("\n") + 2) * size)


_METHODS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(["center", "ljust", "rjust", "zfill"], _check_width),
    **dict.fromkeys(["strip", "lstrip", "rstrip"], _check_characters),
    **dict.fromkeys(["rfind", "rindex", "rsplit", "rpartition"], _check_characters),
    "expandtabs": _check_tabs,
    "join": _check_join,
    "replace": _check_replace,
}


# --- Formats ---


def _check_widths(text: str) -> None:
    if any(len(digits) > 4 or int(digits) > _WIDEST for digits in re.findall(r"\d+", text)):
        raise SecurityError(f"a width of more than {_WIDEST} is too large for a prompt")


def format_percent(text: str, values: Any) -> str:
    """``text % values``."""
    conversions = re.findall(r"%(?:\([^)]*\))?([^a-zA-Z%]*)", text)
    for conversion in conversions:
        if "*" in conversion:
            raise SecurityError("a width that is a value is not supported")
        _check_widths(conversion)
    budget().allow(len(text) + len(conversions) * (_WIDEST + budget().weigh(values)))
    result: str = text % values
    return result


class BoundFormat:
    """``text.format``, of a text in a template."""

    def __init__(self, environment: SandboxedEnvironment, text: str) -> None:
        self._environment, self._text = environment, text

    def __call__(self, *args: Any, **named: Any) -> str:
        return _Formatter(self._environment).vformat(self._text, args, named)


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        _check_widths(format_spec)
        budget().step()
        budget().weigh(value)
        result: str = budget().keep(super().format_field(value, format_spec))
        return result


# --- Filters ---


def _format(value: Any, *args: Any, **named: Any) -> str:
    if args and named:
        raise jinja2.exceptions.FilterArgumentError("positional or named values, not both")
    return format_percent(str(value), named or args)


def _check_round(_: Any, precision: int = 0, *__: Any, **___: Any) -> None:
    if abs(operator.index(precision)) > _WIDEST:
        raise SecurityError("a precision is too large")


def _check_numbers(environment: Any, values: Any, attribute: Any = None, start: Any = 0) -> None:
    # Adding up lists would copy the first ones again and again.
    if not isinstance(start, int | float):
        raise SecurityError("only numbers can be added up")


def _check_rows(value: Any, size: int, *_: Any, **__: Any) -> None:
    budget().allow(abs(operator.index(size)))


_FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "batch": _check_rows,
    "slice": lambda _, value, slices, *__, **___: _check_rows(value, slices),
    "center": lambda text, width=80: _check_width(str(text), width),
    "indent": lambda text, width=4, *_, **__: _check_indent(str(text), width),
    "join": lambda _, items, d="", *__, **___: _check_join(str(d), items),
    "replace": lambda _, text, old, new, count=None: _check_replace(str(text), str(old), str(new)),
    "round": _check_round,
    "sum": _check_numbers,
    "trim": lambda text, chars=None: _check_characters(str(text), chars),
}


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    check = _FILTER_CHECKS.get(name)

    @wraps(function)  # with the mark that says whether it wants the environment
    def call(*args: Any, **named: Any) -> Any:
        budget().step()
        if check:
            check(*args, **named)
        return budget().keep(function(*args, **named))

    return call


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML, which no model was trained on.
    limits = budget()
    limits.weigh(value)
    for text in separators or ():
        limits.allow(len(text) * 1024)
    if indent is not None:
        limits.allow(1024 * (len(indent) if isinstance(indent, str) else operator.index(indent)))
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    pieces, size = [], 0
    for piece in encoder.iterencode(value):  # deep values are indented far
        size += len(piece)
        limits.allow(size)
        pieces.append(piece)
    return "".join(pieces)


def allowed_filters() -> dict[str, Callable[..., Any]]:
    """By name, each with its bounds."""
    functions = {name: filters.FILTERS[name] for name in _FILTERS}
    functions |= {"format": _format, "tojson": _to_json}
    return {name: _bounded(name, function) for name, function in functions.items()}


# --- Globals ---


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    if len(pattern) > _WIDEST:
        raise SecurityError("the pattern of a date is too long")
    _check_widths(pattern)
    return datetime.now().strftime(pattern)


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace cannot have the attribute {name!r}")


class PlainNamespace(Namespace):
    """A namespace whose attributes cannot be Python's own (``__class__`` and the like)."""

    def __init__(self, *args: Any, **values: Any) -> None:
        for name in dict(*args, **values):
            _check_name(name)
        super().__init__(*args, **values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # namespaces within each other could be written out without end


GLOBALS: Mapping[str, Callable[..., Any]] = {
    "cycler": Cycler,
    "dict": dict,
    "joiner": Joiner,
    "namespace": PlainNamespace,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
