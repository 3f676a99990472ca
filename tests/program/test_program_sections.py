"""Attacks on the file as a whole: truncation, the header, the section table, things not files."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from attacks import good_bytes, good_model, not_by_checksum, refused

from satchel.errors import ChecksumError, ProgramFormatError
from satchel.runtime.program import Program
from support import program_file as fm

TABLE = 64 + 64 * 5


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "short.satchel"
    data = good_bytes()
    path.write_bytes(data)
    for size in reversed(range(len(data))):
        os.truncate(path, size)
        with pytest.raises(ProgramFormatError) as caught:
            Program(path)
        assert caught.value.section == ("header" if size else "file")


def test_every_byte_of_header_and_table_flipped(tmp_path: Path) -> None:
    path = tmp_path / "flipped.satchel"
    good = good_bytes()
    path.write_bytes(good)
    sections = {"header", "section table", *fm.KINDS}
    with path.open("r+b") as file:
        for at in range(TABLE):
            for pattern in (1, 2, 4, 8, 16, 32, 64, 128, 0xFF):
                os.pwrite(file.fileno(), bytes([good[at] ^ pattern]), at)
                with pytest.raises(ProgramFormatError) as caught:
                    Program(path)
                assert caught.value.section in sections and caught.value.advice
            os.pwrite(file.fileno(), good[at : at + 1], at)
    Program(path)


def _signed(change: Callable[[bytearray], None]) -> bytes:
    """The header or the table changed, under a right header checksum."""
    data = bytearray(good_bytes())
    change(data)
    data[32:64] = hashlib.sha256(data[:32] + data[64:TABLE]).digest()
    return bytes(data)


def _put(form: str, at: int, value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(form, data, at, value)


RECORD = {r.kind: 64 + 64 * i for i, r in enumerate(fm.read_records(good_bytes()))}
OFFSET = {r.kind: r.offset for r in fm.read_records(good_bytes())}
SIZE = {r.kind: r.size for r in fm.read_records(good_bytes())}

HEADERS = {
    "magic": (_put("<B", 0, 0x73), "header", "not a Satchel program"),
    "older version": (_put("<I", 8, 1), "header", "version 1, and this is version 3"),
    "version": (_put("<I", 8, 4), "header", "format version 4"),
    "fewer sections": (_put("<I", 12, 4), "header", "claims 4 sections"),
    "absurd sections": (_put("<I", 12, 0xFFFFFFFF), "header", "claims 4294967295 sections"),
    "file size": (_put("<Q", 16, len(good_bytes()) + 1), "header", "not as long as it says"),
    "reserved in header": (_put("<Q", 24, 1), "header", "reserved"),
    "unknown section": (_put("<I", 64, 6), "section table", "unknown or repeated section 6"),
    "repeated section": (_put("<I", 64, 2), "section table", "unknown or repeated section 2"),
    "reserved in record": (_put("<I", 68, 1), "section table", "reserved"),
    "reserved after size": (_put("<Q", 64 + 24, 1), "section table", "reserved"),
    "overlap": (
        _put("<Q", RECORD["weight_index"] + 8, OFFSET["methods"]),
        "weight_index",
        "not where the one before it ends",
    ),
    "a gap": (
        _put("<Q", RECORD["weight_index"] + 8, OFFSET["weight_index"] + 256),
        "weight_index",
        "not where the one before it ends",
    ),
    "misaligned": (
        _put("<Q", RECORD["methods"] + 8, OFFSET["methods"] + 1),
        "methods",
        "not where the one before it ends",
    ),
    "far away": (
        _put("<Q", RECORD["tokenizer"] + 8, (1 << 64) - 64),
        "tokenizer",
        "not where the one before it ends",
    ),
    "too long": (_put("<Q", RECORD["weights"] + 16, 1 << 40), "weights", "past the end"),
    "size overflows": (
        _put("<Q", RECORD["weights"] + 16, (1 << 64) - 1),
        "weights",
        "past the end",
    ),
    "trailing bytes": (
        _put("<Q", RECORD["metadata"] + 16, SIZE["metadata"] - 1),
        "section table",
        "bytes after the last section",
    ),
    "padding": (_put("<B", OFFSET["methods"] - 1, 1), "methods", "padding is not zero"),
    "padding of a page": (_put("<B", OFFSET["weights"] - 1, 1), "weights", "padding is not zero"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_lies_in_the_header(name: str, tmp_path: Path) -> None:
    change, section, message = HEADERS[name]
    not_by_checksum(refused(tmp_path, _signed(change), section, message))


def test_bytes_appended(tmp_path: Path) -> None:
    refused(tmp_path, good_bytes() + b"\0", "header", "not as long as it says")


@pytest.mark.parametrize("section", ["methods", "weight_index"])
def test_sections_that_loading_reads_are_checked(section: str, tmp_path: Path) -> None:
    data = bytearray(good_bytes())
    data[OFFSET[section] + 8] ^= 1
    error = refused(tmp_path, bytes(data), section, "checksum")
    assert isinstance(error, ChecksumError)


def test_other_orders_of_sections_load(tmp_path: Path) -> None:
    parts = fm.read_sections(good_bytes())
    digests = b"".join(w.digest for w in good_model().weights)
    shuffled = {kind: parts[kind] for kind in reversed(parts)}
    path = tmp_path / "reversed.satchel"
    path.write_bytes(fm.write_sections(shuffled, hashlib.sha256(digests).digest()))
    Program(path, verify=True)


# --- what is not a program at all ---


@pytest.mark.parametrize(
    ("data", "section"),
    [
        (b"", "file"),
        (b"SATCHEL\0", "header"),
        (b"GGUF" + bytes(1000), "header"),
        (bytes(10_000), "header"),
        (b"\xff" * 10_000, "header"),
    ],
)
def test_not_programs(data: bytes, section: str, tmp_path: Path) -> None:
    refused(tmp_path, data, section)


def test_advice_for_a_file_of_another_kind(tmp_path: Path) -> None:
    error = refused(tmp_path, b"GGUF" + bytes(1000), "header", "not a Satchel program")
    assert "satchel export" in error.advice


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "no permission", "nul", "bytes"])
def test_paths_that_cannot_be_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "there"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "no permission":
        path.write_bytes(good_bytes())
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
    elif kind == "nul":
        path = Path("a\0b")
    elif kind == "bytes":
        path = Path("name-\udcff")
    with pytest.raises(ProgramFormatError) as caught:
        Program(path)
    assert caught.value.section == "file" and caught.value.advice
