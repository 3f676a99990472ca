"""Weights in parts: some of a matrix's rows, by a name that says which."""

from __future__ import annotations

import re
from dataclasses import dataclass

from satchel.encodings.tiles import TILE_ROWS

_NAME = re.compile(r"(.+)\.rows(\d+)of(\d+)")


@dataclass(frozen=True)
class RowPart:
    """Part ``number`` of ``count``, in whole tiles of rows as they are stored."""

    weight: str
    number: int = 0
    count: int = 1

    @staticmethod
    def named(name: str) -> RowPart:
        """
        >>> RowPart.named("head.rows1of3"), RowPart.named("head").count
        (RowPart(weight='head', number=1, count=3), 1)
        """
        found = _NAME.fullmatch(name)
        return RowPart(found[1], int(found[2]), int(found[3])) if found else RowPart(name)

    @property
    def name(self) -> str:
        return f"{self.weight}.rows{self.number}of{self.count}" if self.count > 1 else self.weight

    def tiles(self, rows: int) -> tuple[int, int]:
        """The first tile, and the one after the last."""
        tiles = -(-rows // TILE_ROWS)
        return self.number * tiles // self.count, (self.number + 1) * tiles // self.count

    def rows(self, rows: int) -> tuple[int, int]:
        """
        >>> RowPart("head", 1, 2).rows(40)
        (16, 40)
        """
        first, last = self.tiles(rows)
        return first * TILE_ROWS, min(last * TILE_ROWS, rows)
