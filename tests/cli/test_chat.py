"""The conversation of satchel chat: commands, messages of several lines, the terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import satchel
from satchel.cli.conversation import COMMANDS, Conversation
from satchel.cli.main import main
from satchel.cli.prompt import PipeReader, PromptToolkitReader, Reader, read_message
from satchel.cli.terminal_text import TerminalText, width_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def talk(program: Path) -> Conversation:
    llm = satchel.LLM(program)
    options = {"max_new_tokens": 4, "sampling": llm.chat_sampling, "on_context_full": "slide"}
    return Conversation(llm, "Be brief.", options)


def said(talk: Conversation) -> list[str]:
    return [str(m["content"]) for m in talk.messages if m["role"] == "user"]


def test_undo_takes_a_message_and_its_answer_back(talk: Conversation, capsys: Capture) -> None:
    talk.take("one")
    talk.take("two")
    talk.take("/undo")
    assert said(talk) == ["one"] and talk.messages[-1]["role"] == "assistant"
    talk.take("/undo")
    assert [m["role"] for m in talk.messages] == ["system"]
    capsys.readouterr()
    talk.take("/undo")
    assert "nothing has been said yet" in capsys.readouterr().err


def test_regen_answers_the_last_message_once_more(talk: Conversation) -> None:
    talk.take("/set temperature 5")
    talk.take("hello")
    answers = set()
    for seed in range(5):
        talk.take(f"/set seed {seed}")
        talk.take("/regen")
        answers.add(talk.messages[-1]["content"])
        assert [m["role"] for m in talk.messages] == ["system", "user", "assistant"]
    assert len(answers) > 1


def test_set_refuses_what_cannot_be_and_keeps_what_was(talk: Conversation, capsys: Capture) -> None:
    for line, reason in (
        ("/set colour red", "nothing 'colour' to set"),
        ("/set temperature warm", "'warm' is not a value for temperature"),
        ("/set temperature -1", "temperature is -1"),
        ("/set top_p 2", "top_p is 2"),
        ("/set on_context_full explode", "no way 'explode'"),
    ):
        talk.take(line)
        assert reason in capsys.readouterr().err, line
    talk.take("/set top-k 7")
    talk.take("/set")
    assert "greedy, repetition penalty 1.05" in capsys.readouterr().err
    talk.take("hello")
    assert said(talk) == ["hello"]


def test_a_conversation_is_saved_and_loaded(
    talk: Conversation, tmp_path: Path, capsys: Capture
) -> None:
    talk.take("hello")
    before = list(talk.messages)
    file = tmp_path / "talk.json"
    talk.take(f"/save {file}")
    assert json.loads(file.read_text())["messages"] == before
    talk.take(f"/save {file}")
    assert "exists" in capsys.readouterr().err
    talk.take("/reset")
    assert talk.messages == [{"role": "system", "content": "Be brief."}]
    talk.take(f"/load {file}")
    assert talk.messages == before
    file.write_text('{"messages": [{"role": "user"}]}')
    talk.take(f"/load {file}")
    talk.take(f"/load {tmp_path / 'none'}")
    heard = capsys.readouterr().err
    assert "not a conversation" in heard and "No such file" in heard
    assert talk.messages == before


def test_unknown_commands_are_an_error_and_paths_are_not(
    talk: Conversation, capsys: Capture
) -> None:
    talk.take("/foo bar")
    assert "there is no command /foo" in capsys.readouterr().err
    assert said(talk) == []
    talk.take("/etc/passwd holds what?")
    talk.take("//help")
    assert said(talk) == ["/etc/passwd holds what?", "/help"]
    talk.take("/help")
    heard = capsys.readouterr().err
    assert all(name in heard for name in COMMANDS)


def test_other_commands(talk: Conversation, capsys: Capture) -> None:
    talk.take("/system Be kind.")
    talk.take("/system")
    talk.take("hello")
    talk.take("/stats")
    talk.take("/image cat.png")
    heard = capsys.readouterr().err
    assert "Be kind." in heard and "1 answers, 4 tokens" in heard and "reads text only" in heard
    talk.take("/quit")
    assert talk.done


def test_a_long_conversation_slides(talk: Conversation, capsys: Capture) -> None:
    for number in range(12):
        talk.take(f"message number {number}")
    assert len(said(talk)) == 12
    assert "satchel:" not in capsys.readouterr().err


def test_what_is_forgotten_of_a_long_message_is_told(talk: Conversation, capsys: Capture) -> None:
    talk.take("hello")
    assert "forgotten" not in capsys.readouterr().err
    talk.take("word " * 400)
    heard = " ".join(capsys.readouterr().err.split())
    cut = re.search(r"(\d+) older tokens were forgotten, the context being full", heard)
    read = re.search(r"(\d+) prompt tokens", heard)
    assert cut and read
    whole = len(talk._llm.chat_tokens(talk.messages[:-1]))
    assert int(cut[1]) + int(read[1]) == whole


@contextmanager
def typed(text: str, tmp_path: Path) -> Iterator[Reader]:
    """prompt_toolkit's reader, with keys as a terminal sends them."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(text)
        yield PromptToolkitReader(tmp_path / "cache" / "history", list(COMMANDS))


def test_pasted_lines_are_one_message_and_history_is_kept(tmp_path: Path) -> None:
    pasted = "\x1b[200~one\ntwo\nthree\x1b[201~\r"
    with typed(pasted + "next\r", tmp_path) as reader:
        assert read_message(reader) == "one\ntwo\nthree"
        assert read_message(reader) == "next"
    with typed("\x1b[A\x1b[A\r", tmp_path) as reader:  # up, up
        assert read_message(reader) == "one\ntwo\nthree"
    if os.name == "posix":
        assert (tmp_path / "cache" / "history").stat().st_mode & 0o077 == 0


def test_quotes_begin_and_end_a_message_of_several_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with typed('"""one\r  two\r"""\r"""x"""\r', tmp_path) as reader:
        assert read_message(reader) == "one\n  two"
        assert read_message(reader) == "x"
    monkeypatch.setattr("sys.stdin", io.StringIO('"""a\nb"""\nc\n'))
    assert read_message(PipeReader()) == "a\nb"
    assert read_message(PipeReader()) == "c"


def read_until(terminal: int, wanted: str, seconds: float = 30) -> str:
    text, end = "", time.monotonic() + seconds
    while wanted not in text:
        ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
        assert ready, text
        text += os.read(terminal, 4096).decode(errors="replace")
    return text


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are made with pty")
@pytest.mark.parametrize("toolkit", [True, False])
def test_ctrl_c_at_the_prompt_does_not_end_it(program: Path, tmp_path: Path, toolkit: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "satchel", "chat", str(program), "--max-new-tokens", "3"]
    environment = {**os.environ, "TERM": "xterm", "SATCHEL_CACHE": str(tmp_path)}
    environment["PROMPT_TOOLKIT_NO_CPR"] = "1"
    if not toolkit:
        (tmp_path / "prompt_toolkit.py").write_text("raise ImportError")
        environment["PYTHONPATH"] = str(tmp_path)
    # The pseudo-terminal becomes the controlling one, so that Ctrl-C is a signal.
    start = "import os, sys; __import__('fcntl')"
    start += ".ioctl(0, __import__('termios').TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", start, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    try:
        read_until(ours, ">")
        time.sleep(1)  # the prompt is there before it listens
        os.write(ours, b"\x03")
        read_until(ours, "/exit leaves")
        os.write(ours, b"hello\r")
        read_until(ours, "new tokens")
        os.write(ours, b"/exit\r")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def shown(text: str, columns: int = 30, style: bool = True, step: int = 3) -> str:
    written: list[str] = []
    terminal = TerminalText(written.append, columns, style)
    for at in range(0, len(text), step):
        terminal.push(text[at : at + step])
    terminal.finish()
    return "".join(written)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[\d*m", "", text)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_words_wrap_at_the_margin(step: int) -> None:
    text = "The quick brown fox jumps over the lazy dog.\n- an entry that goes on and on and on\n"
    lines = plain(shown(text, step=step)).splitlines()
    assert all(width_of(line) < 30 for line in lines)
    assert lines == [
        "The quick brown fox jumps",
        "over the lazy dog.",
        "• an entry that goes on and",
        "  on and on",
    ]


def test_markdown_is_lightly_rendered() -> None:
    text = "# Title here\nsome **bold words** and `code`\n```python\nx = '**'  \n    y\n```\nend\n"
    got = shown(text, 60)
    assert plain(got).splitlines() == [
        "Title here", "some bold words and code", "```python", "x = '**'  ", "    y", "```", "end",
    ]  # fmt: skip
    assert "\x1b[1mbold\x1b[0m" in got and "\x1b[36mcode\x1b[0m" in got
    assert shown(text, 60, style=False) == text


def test_control_characters_of_a_model_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in shown("a\x1b]0;title\x07b \x1b[31m red\r\x9b2J", style=False)


def test_wide_characters_count_twice_and_break_anywhere() -> None:
    lines = shown("你好世界" * 8 + "\n", 20, style=False).splitlines()
    assert "".join(lines) == "你好世界" * 8 and all(width_of(line) <= 20 for line in lines)


def test_a_system_message_without_a_place_is_told(program: Path, capsys: Capture) -> None:
    call = ["run", str(program), "--raw", "-p", "x", "--system", "Be brief.", "--max-new-tokens"]
    assert main([*call, "2"]) == 0
    assert "system message is left out" in capsys.readouterr().err
