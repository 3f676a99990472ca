"""The one real model that tests may fetch."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

import satchel.sources
from satchel.errors import DownloadError
from satchel.sources.cache import checkpoints_folder


def find_smollm2() -> Path:
    """Its checkpoint: that of SATCHEL_TEST_SMOLLM2, or of the cache; else the test is skipped."""
    given = os.environ.get("SATCHEL_TEST_SMOLLM2")
    if os.environ.get("SATCHEL_TEST_FETCH"):
        with contextlib.suppress(DownloadError):
            satchel.sources.pull("smollm2-135m")
    found = (
        [Path(given)] if given else sorted((checkpoints_folder() / "smollm2-135m").glob("*.gguf"))
    )
    if not found or not found[0].is_file():
        pytest.skip("SmolLM2 is not here: `satchel pull smollm2-135m`, or set SATCHEL_TEST_FETCH=1")
    return found[0]
