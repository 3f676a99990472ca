"""Progress: a full bar is drawn once, counts are not called bytes, pipes get a few lines."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from satchel.progress import ProgressBar, silent, usual_progress

Capture = pytest.CaptureFixture[str]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def test_a_full_bar_is_drawn_once(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    on_a_terminal(monkeypatch)
    bar = ProgressBar()
    for done in (10_000_000, 98_400_000, *[98_400_000] * 8):
        bar("Packing tiny", done, 98_400_000)
    bar.close()
    heard = capsys.readouterr().err
    assert heard.count("\n") == 1
    assert "Packing tiny: 100%" in heard and "98.4M/98.4M" in heard


def test_what_is_counted_is_not_called_bytes(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for terminal in (False, True):
        if terminal:
            on_a_terminal(monkeypatch)
        bar = ProgressBar()
        bar("Calibrating, layers", 0, 12)
        bar("Calibrating, layers", 12, 12)
        heard = capsys.readouterr().err
        assert "12" in heard and "layers" in heard and "B/s" not in heard and "kB" not in heard


def test_a_pipe_gets_a_few_plain_lines(capsys: Capture) -> None:
    bar = ProgressBar()
    for done in range(0, 101):
        bar("Packing tiny", done * 1_000_000, 100_000_000)
    bar("Packing tiny", 100_000_000, 100_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "Packing tiny: 100.0 MB …", "Packing tiny: 25%", "Packing tiny: 50%", "Packing tiny: 75%",
        "Packing tiny: 100%",
    ]  # fmt: skip


def test_a_notebook_has_a_bar_without_asking(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert usual_progress() is silent
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    bar = usual_progress()
    assert isinstance(bar, ProgressBar)
