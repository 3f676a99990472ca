"""Numbers as people read them."""

from __future__ import annotations


def megabytes(size: float) -> str:
    """
    >>> megabytes(98_362_432)
    '98.4 MB'
    """
    if size >= 1e9:
        return f"{size / 1e9:.2f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def counted(number: int, thing: str) -> str:
    """
    >>> counted(1, "cell"), counted(1500, "cell"), counted(2, "process")
    ('1 cell', '1,500 cells', '2 processes')
    """
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{ending}"
