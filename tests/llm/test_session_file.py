"""A conversation that another process takes up: nothing is read again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import satchel
from satchel import LLM
from satchel.errors import InputError
from satchel.llm.session_file import load_session, save_session
from support.tiny_llm import write_tiny_llm


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("session")
    return satchel.export(write_tiny_llm(folder / "m"), folder / "m.satchel", context=100)


def test_it_goes_on_with_the_same_bits(program: Path, tmp_path: Path) -> None:
    llm, file = LLM(program), tmp_path / "kept.session"
    llm.generate("hello", raw=True, max_new_tokens=9).finish()
    tokens = list(llm.session.tokens)
    save_session(file, llm.session, [{"role": "user", "content": "hello"}])
    other = LLM(program)
    assert load_session(file, other.sessions) == [{"role": "user", "content": "hello"}]
    assert other.session.tokens == tokens
    np.testing.assert_array_equal(other.session.feed([5]), llm.session.feed([5]))


def test_files_that_are_no_conversations_of_the_program(program: Path, tmp_path: Path) -> None:
    llm = LLM(program)
    llm.generate("hello", raw=True, max_new_tokens=2).finish()
    file, other = tmp_path / "kept.session", tmp_path / "other.session"
    save_session(file, llm.session)
    facts = {"program": llm.program.checksum, "messages": "[]"}
    tokens = np.zeros(3, np.int32)
    for arrays, metadata, message in (
        ({"tokens": tokens}, {"program": "x"}, "another program"),
        ({"tokens": tokens}, facts, "does not fit"),
        ({"tokens": np.zeros(1 << 20, np.int32)}, facts, "does not fit"),
        ({}, facts, "does not fit"),
    ):
        save_file(arrays, other, metadata)
        with pytest.raises(InputError, match=message):
            load_session(other, llm.sessions)
    for damaged in (b"", b"nonsense", file.read_bytes()[:-5]):
        other.write_bytes(damaged)
        with pytest.raises(InputError, match="not a saved conversation"):
            load_session(other, llm.sessions)
    assert llm.sessions.first.instance.cache_usage.sequences <= 3


def test_chat_in_two_processes(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.session"
    command = [sys.executable, "-m", "satchel", "chat", str(program), "--session", str(file)]
    command += ["--max-new-tokens", "4"]
    for said in ("hi", "again"):
        done = subprocess.run(
            command, input=f"{said}\n", capture_output=True, text=True, check=True
        )
    assert "Going on with" in done.stderr + done.stdout
    llm = LLM(program)
    messages = load_session(file, llm.sessions)
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2
    assert json.dumps(messages).count("again") == 1
