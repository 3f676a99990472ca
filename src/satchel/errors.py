"""Every error that Satchel raises on purpose.

Each one says what was wrong and where; ``advice`` says what to do next. The command line
prints both on one line and exits with status 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

# What comes of a text in the place of a number, a list that is too short, 10^400, …
_OF_WRONG_VALUES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


# A whole command is left as it is; a flag alone is an argument to who reads it in Python.
_FLAG = re.compile(
    r"`[^`]*`|\b(?:satchel|pip|cmake|ray|hf) [^,;()]*|(?<![\w-])--([a-z][a-z-]*)| with -o\b"
)
_ARGUMENTS = {"force": "overwrite=True", "override": "overrides", "adapter": "adapters"}


def in_python(advice: str) -> str:
    """Advice for the command line as it is told to who calls a function.

    >>> in_python("Use --kv-bits 8, or give another name with -o. Or: satchel run FILE --raw")
    'Use kv_bits 8, or give another name. Or: satchel run FILE --raw'
    """

    def told(found: re.Match[str]) -> str:
        name = found[1]
        if name:
            return _ARGUMENTS.get(name, name.replace("-", "_"))
        return "" if found[0] == " with -o" else found[0]

    return _FLAG.sub(told, advice)


class SatchelError(Exception):
    """The base of all errors that are the input's fault and not a bug.

    ``advice`` speaks of flags, as the command line needs it; as a text, the error of arguments.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}. {in_python(advice)}" if advice else message)
        self.message = message
        self.advice = advice

    @property
    def on_command_line(self) -> str:
        """Message and advice as a person at a terminal reads them."""
        return f"{self.message}. {self.advice}" if self.advice else self.message


@contextmanager
def blaming(kind: type[SatchelError], what: str, advice: str) -> Iterator[None]:
    """While values of a file are read: what they break is an error of the file, and not a bug."""
    try:
        yield
    except _OF_WRONG_VALUES as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise kind(f"{what}: {reason}", advice) from error


class CheckpointError(SatchelError):
    """A checkpoint is missing, damaged, or does not hold what its model needs."""


class ConfigError(SatchelError):
    """A model's configuration is wrong or asks for something that is not supported."""


class UsageError(ConfigError):
    """A command was given things that do not go together, or not enough."""


class UnsupportedModelError(ConfigError):
    """No model file exists for this architecture."""


class DownloadError(SatchelError):
    """Weights could not be fetched."""


class TokenizerError(SatchelError):
    """A tokenizer is missing, damaged, or does not fit its model."""


class TemplateError(SatchelError):
    """A chat template is missing or failed; the prompt it would give is not usable."""


class GraphError(SatchelError):
    """A graph breaks a shape or dtype rule."""


class ImportModuleError(SatchelError):
    """A PyTorch module cannot be brought in: torch.export failed, or it uses what is not known."""


class UnsupportedOperatorError(ImportModuleError):
    """A module uses operators that have no counterpart; ``operators`` has all of them."""

    def __init__(self, operators: list[str], advice: str = "") -> None:
        listed = "; ".join(operators)
        super().__init__(f"the module uses what is not supported: {listed}", advice)
        self.operators = operators


class RecipeError(SatchelError):
    """A recipe does not exist or does not fit the model."""


class OutputExistsError(SatchelError):
    """The output file exists and may not be overwritten."""


class ProgramFormatError(SatchelError):
    """A program file is not valid. ``section`` and ``offset`` say where."""

    def __init__(self, message: str, advice: str = "", section: str = "", offset: int = 0) -> None:
        # The beginning of the whole file is no place that would tell anyone more.
        nowhere = section in ("", "file") and not offset
        where = "" if nowhere else f" (section {section or 'header'}, offset {offset})"
        super().__init__(message + where, advice)
        self.section = section
        self.offset = offset


class ChecksumError(ProgramFormatError):
    """The bytes of a section or a weight are not those that were written."""


class SignatureError(SatchelError):
    """A program is not signed by whom it should be, or a key or signature is not usable."""


class BackendError(SatchelError):
    """A chip's compiler or runtime is missing, or failed. ``code`` is the vendor's, if any."""

    def __init__(self, message: str, advice: str = "", code: int | None = None) -> None:
        super().__init__(message, advice)
        self.code = code


class ExecutionError(SatchelError):
    """A method was called with inputs that it cannot take."""


class InputError(SatchelError):
    """What a program was given to run on is not what it takes."""


class CacheFullError(ExecutionError):
    """The caches of all conversations together take the memory that they may take."""


class ContextFullError(SatchelError):
    """The prompt does not fit in the context that the program was exported with."""


class RemoteError(SatchelError):
    """A server does not answer, or refuses."""


class DeviceError(SatchelError):
    """A phone or board cannot be reached, has no room, or what ran there failed."""


class EvaluationError(SatchelError):
    """Something cannot be evaluated: its text, its task or its checkpoint is missing or wrong."""


class QualityError(SatchelError):
    """A program lost more to quantisation than it was allowed to."""
