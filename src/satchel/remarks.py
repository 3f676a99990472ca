"""What a person should know although nothing failed: said as a warning, printed by the commands."""

from __future__ import annotations

import warnings


class Remark(UserWarning):
    """Something was left out, cut or chosen, and the result is still as asked for."""


def remark(text: str) -> None:
    """Say something that is no error; ``warnings.filterwarnings`` can silence or raise it.

    >>> with warnings.catch_warnings(record=True) as heard:
    ...     remark("The context is cut to 2048 tokens.")
    >>> [str(one.message) for one in heard]
    ['The context is cut to 2048 tokens.']
    """
    # The place is of no use to the reader, so all remarks seem to come from one.
    warnings.warn_explicit(text, Remark, "satchel", 1)
