"""What is wrong usage (status 2) and what a failure (1), and files whose names are no text."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import satchel
from satchel.cli.main import main
from satchel.remarks import Remark
from support.tiny_llm import write_tiny_llm

Capture = pytest.CaptureFixture[str]

# Values that no model could take, and a word of the reason.
SAMPLING = [
    ("--top-p", "2", "at most 1"),
    ("--top-p", "nan", "at most 1"),
    ("--min-p", "-0.5", "from 0 to 1"),
    ("--temperature", "-1", "0 or more"),
    ("--repetition-penalty", "0", "above 0"),
    ("--top-k", "-3", "0 or more"),
    ("--top-k", "many", "whole number"),
    ("--seed", "-1", "0 or more"),
]


def status(*words: object) -> int:
    """That of a command, whether its words or its values are refused."""
    try:
        return main([*map(str, words)])
    except SystemExit as left:
        return int(left.code or 0)


@pytest.mark.parametrize(("flag", "value", "reason"), SAMPLING)
def test_a_value_that_no_model_takes_is_wrong_usage(
    capsys: Capture, flag: str, value: str, reason: str
) -> None:
    for command in ("run", "chat"):
        words = [command, "missing.satchel", "--prompt", "hello", f"{flag}={value}"]
        assert status(*words) == 2  # and not 1: nobody has looked for the file
        assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "x.satchel", "hello", "--warmup", "-1"),
        ("run", "x.satchel", "hello", "--threads", "0"),
        ("bench", "x.satchel", "--warmup", "-1"),
        ("export", "{tiny}", "--recipe", "nosuch"),
        ("export", "{tiny}", "--recipe", "8da4w", "--group-size", "7"),
        ("export", "{tiny}", "--target", "nosuch"),
        ("export", "{tiny}", "--prefill-ar-len", "1"),
        ("export", "{tiny}", "--ngram", "3"),  # which is for mode lookahead
        ("export", "{tiny}", "--max-ppl-increase", "1"),
        ("run", "{program}", "hello", "--ngram", "1"),
        ("bench", "{program}", "--ngram", "3"),
    ],
)
def test_other_values(program: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    tiny = write_tiny_llm(tmp_path / "tiny")
    assert status(*(word.format(tiny=tiny, program=program) for word in words)) == 2


def test_what_a_file_cannot_do_is_a_failure(program: Path) -> None:
    assert status("run", "missing.satchel", "hello") == 1
    assert status("run", program, "hello", "--adapter", "fr") == 1
    assert status("run", program, "hello " * 500) == 1


def test_a_block_size_that_mode_kv_has_no_use_for_is_told(tmp_path: Path) -> None:
    tiny = write_tiny_llm(tmp_path / "tiny")
    with pytest.warns(Remark, match="prefill_ar_len 32 is left out"):
        satchel.export(tiny, tmp_path / "kv.satchel", mode="kv", prefill_ar_len=32, context=64)


@pytest.mark.skipif(sys.platform != "linux", reason="there, names are text")
def test_a_file_name_may_be_any_bytes(program: Path, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    odd, copy = folder + b"/\xff\xe9.satchel", folder + b"/again\xff.satchel"
    shutil.copy(program, odd)
    write_tiny_llm(tmp_path / "tiny")
    os.rename(folder + b"/tiny", folder + b"/t\xffny")
    satchel_command = [sys.executable, "-m", "satchel.cli.main"]
    for words in (
        [b"verify", odd],
        [b"inspect", odd, b"--json"],
        [b"run", odd, b"hello", b"--max-new-tokens", b"2", b"--json"],
        [b"report", odd, b"-o", folder + b"/page.html"],
        [b"export", folder + b"/t\xffny", b"-o", copy, b"--context", b"64"],
        [b"verify", copy],
    ):
        done = subprocess.run([*satchel_command, *words], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    missing = subprocess.run(
        [*satchel_command, "inspect", folder + b"/no\xff"], capture_output=True, check=False
    )
    assert missing.returncode == 1 and b"no\\udcff" in missing.stderr
    assert satchel.load(os.fsdecode(odd)).methods
