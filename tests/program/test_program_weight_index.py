"""Attacks on the weight index, with right checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attacks import good_bytes, good_model, not_by_checksum, refused

from support import program_file as fm
from support.program_file import Model


def _change(which: str, **fields: Any) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        at = next(i for i, w in enumerate(model.weights) if w.name == which)
        model.weights[at] = replace(model.weights[at], **fields)

    return change


def _shift(name: str, field: str, by: int) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        weight = model.weight(name)
        setattr(weight, field, getattr(weight, field) + by)

    return change


def _more_bytes(model: Model) -> None:
    model.weight_bytes += bytes(64)


def _fewer_bytes(model: Model) -> None:
    model.weight_bytes = model.weight_bytes[:-1]


def _leave_out(model: Model) -> None:
    del model.weights[-1]


LIES: dict[str, tuple[Callable[[Model], None], str]] = {
    "name repeated": (_change("norm", name="embed"), "weight embed is repeated"),
    "no name": (_change("norm", name=""), "has no name"),
    "name not UTF-8": (_change("norm", name=b"\x80"), "not UTF-8"),
    "unknown encoding": (_change("norm", encoding=6), "unknown encoding 6"),
    "encoding between": (_change("norm", encoding=15), "unknown encoding 15"),
    "encoding past the last": (_change("norm", encoding=31), "unknown encoding 31"),
    "matrix of rank 1": (_change("q", shape=[1024]), "bad rank"),
    "rank": (_change("norm", shape=[1] * 9), "bad rank"),
    "dimension of 0": (_change("norm", shape=[0]), "has the dimension 0"),
    "dimension below 0": (_change("norm", shape=[-1]), "has the dimension -1"),
    "dimension too large": (_change("norm", shape=[1 << 41]), "has the dimension"),
    "product overflows": (_change("norm", shape=[1 << 40] * 4), "too large"),
    "product wraps to 0": (_change("norm", shape=[1 << 32, 1 << 32]), "too large"),
    "group of 0": (_change("q", group=0), "bad group 0"),
    "group not a multiple": (_change("q", group=4), "bad group 4"),
    "group does not divide": (_change("q", group=24), "bad group 24"),
    "group too large": (_change("q", shape=[1, 1 << 17], group=1 << 17), "bad group 131072"),
    "group absurd": (_change("q", group=0xFFFFFFF8), "bad group"),
    "group of a plain weight": (_change("norm", group=8), "not quantised"),
    "group of a float matrix": (_change("gate", group=8), "not quantised"),
    "more codes": (_shift("norm", "codes_size", 4), "wrong size"),
    "fewer codes": (_shift("q", "codes_size", -64), "wrong size"),
    "size overflows": (_change("norm", codes_size=(1 << 64) - 1), "wrong size"),
    "fewer scales": (_shift("q", "scales_size", -2), "wrong size"),
    "no factors": (_shift("k", "scales_size", -64), "wrong size"),
    "sums that are not there": (_change("gate", encoding=24), "wrong size"),
    "group of integers": (_change("whole", group=4), "not quantised"),
    "a group that divides no run": (_change("fine", shape=[32, 24], group=24), "bad group 24"),
    "five bits in half a step": (_change("five", group=16), "bad group 16"),
    "minima that are not there": (_change("five", encoding=27), "wrong size"),
    "another group of a K-quant": (_change("high_k", group=32), "bad group 32"),
    "half a super-block": (_change("high_k", shape=[32, 128]), "bad group 16"),
    "another K-quant": (_change("low_k", encoding=29), "wrong size"),
    "steps that are not there": (_change("q", encoding=25), "wrong size"),
    "factors that are not there": (_change("q", encoding=20), "wrong size"),
    "group of factors not a multiple": (_change("k", group=4), "bad group 4"),
    "scales of a plain weight": (_change("norm", scales_size=4), "wrong size"),
    "rows that are not there": (_change("q", shape=[64, 32]), "wrong size"),
    "overlaps": (_shift("norm", "offset", -64), "not where the weight before it ends"),
    "a gap": (_shift("norm", "offset", 64), "not where the weight before it ends"),
    "misaligned": (_shift("norm", "offset", 1), "not where the weight before it ends"),
    "offset overflows": (_change("norm", offset=(1 << 64) - 64), "not where the weight"),
    "scales over codes": (_shift("q", "scales_offset", -64), "scales in the wrong place"),
    "scales after a gap": (_shift("q", "scales_offset", 64), "scales in the wrong place"),
    "scales where none are": (_change("norm", scales_offset=64), "scales in the wrong place"),
    "section too long": (_more_bytes, "longer than its weights"),
    "section too short": (_fewer_bytes, "past the weights section"),
    "weight left out": (_leave_out, "longer than its weights"),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_in_the_weight_index(name: str, tmp_path: Path) -> None:
    change, message = LIES[name]
    model = good_model()
    change(model)
    not_by_checksum(refused(tmp_path, fm.write(model), "weight_index", message))


def _with_index(section: bytes) -> bytes:
    parts = fm.read_sections(good_bytes()) | {"weight_index": section}
    return fm.write_sections(parts, hashlib.sha256(b"").digest())


def test_absurd_count(tmp_path: Path) -> None:
    index = b"\xff\xff\xff\xff" + fm.write_index(good_model())[4:]
    refused(tmp_path, _with_index(index), "weight_index", "claims 4294967295 entries")


def test_bytes_left_over(tmp_path: Path) -> None:
    index = fm.write_index(good_model()) + b"\0"
    refused(tmp_path, _with_index(index), "weight_index", "left over")


def test_cut_at_every_byte(tmp_path: Path) -> None:
    index = fm.write_index(good_model())
    for size in range(len(index)):
        refused(tmp_path, _with_index(index[:size]), "weight_index")
