"""The process that holds Qualcomm's libraries: its errors, and its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from satchel.backends.qnn import vendor
from satchel.backends.qnn.child import Child
from satchel.errors import BackendError


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "PACKAGES", ("onnxruntime-missing",))
    with pytest.raises(BackendError, match="needs onnxruntime-missing") as caught:
        Child()
    assert caught.value.advice == "Install it with: pip install 'satchel[qnn]'"


def test_a_model_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    with Child() as child, pytest.raises(BackendError, match="compiling for qnn:SM8750 failed"):
        child.compile([("one", broken, None)], "qnn:SM8750")


def test_a_crash_is_an_error() -> None:
    pytest.importorskip("onnxruntime_qnn", reason="pip install 'satchel[qnn]'")
    with Child() as child:
        os.kill(child.pid, signal.SIGSEGV)
        with pytest.raises(BackendError, match="was ended by SIGSEGV in 'run'"):
            child.run("one", {})
