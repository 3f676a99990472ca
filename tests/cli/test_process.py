"""The program as a process: start-up time's cause, signals, pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SATCHEL = [sys.executable, "-m", "satchel"]


def test_import_loads_nothing_heavy() -> None:
    """`import satchel` stays quick because these are loaded only when used."""
    code = "import sys, satchel; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"numpy", "torch", "tokenizers", "jinja2", "gguf", "safetensors", "transformers"}
    assert not heavy & set(loaded)


def test_nothing_needs_torch(program: Path, checkpoint: Path, tmp_path: Path) -> None:
    """Export and run in a process where torch and transformers cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from satchel.cli.main import main\n"
        f"output = {str(tmp_path / 'a.satchel')!r}\n"
        f"assert main(['export', {str(checkpoint)!r}, '-o', output]) == 0\n"
        f"assert main(['run', {str(program)!r}, '--prompt', 'x', '--max-new-tokens', '2']) == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_kernels_that_are_not_there_are_one_line(program: Path) -> None:
    command = [*SATCHEL, "run", str(program), "--prompt", "x", "--max-new-tokens", "1"]
    environment = {**os.environ, "SATCHEL_ISA": "abacus"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "no kernels named 'abacus', only portable" in result.stderr
    assert "SATCHEL_ISA must be one of them" in result.stderr


UNNAMED = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="no unnamed files here")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGKILL, marks=UNNAMED)]
)
def test_an_interrupted_export_leaves_nothing(
    checkpoint: Path, tmp_path: Path, number: signal.Signals
) -> None:
    # The pace is slowed down so that the signal comes in the middle of writing.
    code = (
        "import sys, time, satchel.exporter.weights as w\n"
        "plain = w.WeightPacker.encode\n"
        "def slow(self, *a):\n"
        "    for block in plain(self, *a):\n"
        "        print('writing', flush=True); time.sleep(0.2); yield block\n"
        "w.WeightPacker.encode = slow\n"
        "from satchel.cli.main import main\n"
        f"sys.exit(main(['export', {str(checkpoint)!r}, '-o', {str(tmp_path / 'x.satchel')!r}]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert list(tmp_path.iterdir()) == []
    if number == signal.SIGKILL:
        return  # it cannot say anything any more
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_an_interrupted_answer_ends_cleanly(program: Path) -> None:
    arguments = ["run", str(program), "--prompt", "x", "--max-new-tokens", "100000"]
    process = subprocess.Popen(
        [*SATCHEL, *arguments, "--on-context-full", "slide"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in errors


def test_a_reader_that_goes_away_is_no_traceback(program: Path) -> None:
    arguments = ["run", str(program), "--prompt", "x", "--max-new-tokens", "100000"]
    process = subprocess.Popen(
        [*SATCHEL, *arguments, "--on-context-full", "slide"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(timeout=30) == 1
    assert b"Traceback" not in errors


def test_progress_is_plain_lines_in_a_pipe(checkpoint: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*SATCHEL, "export", str(checkpoint), "-o", str(tmp_path / "x.satchel")],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("Packing")]
    assert lines[-1].endswith("100%")
    assert "\r" not in done.stderr
    assert "\x1b" not in done.stderr


def test_progress_is_a_bar_on_a_terminal(checkpoint: Path, tmp_path: Path) -> None:
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*SATCHEL, "export", str(checkpoint), "-o", str(tmp_path / "x.satchel")],
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(timeout=30) == 0
    assert b"\r" in shown
    assert "█".encode() in shown
    assert b"100%" in shown


def test_an_interruption_while_the_commands_are_loaded_is_no_traceback() -> None:
    """The modules of all commands take seconds where the disk is slow."""
    code = (
        "import sys, time, satchel.cli.main as main\n"
        "def slow(command):\n"
        "    print('loading', flush=True); time.sleep(30)\n"
        "main._module = slow\n"
        "sys.exit(main.main(['doctor']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "\nsatchel: interrupted; nothing half-done was left behind\n"
