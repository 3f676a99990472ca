"""lm-eval, where it is installed."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from satchel.errors import EvaluationError


def import_harness(part: str = "", download: bool = False) -> Any:
    """A module of lm-eval, which may use the network only if ``download`` says so."""
    if not download:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            os.environ[name] = "1"
        # They read the environment when they are imported, which may have been before.
        for module, names in (
            ("datasets.config", ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")),
            ("huggingface_hub.constants", ("HF_HUB_OFFLINE",)),
        ):
            for name in names:
                if module in sys.modules:
                    setattr(sys.modules[module], name, True)
    os.environ.setdefault("TQDM_DISABLE", "1")  # there is one bar, and it is ours
    try:
        return import_module("lm_eval" + (f".{part}" if part else ""))
    except ImportError as error:
        raise EvaluationError(
            f"tasks need lm-eval, which cannot be imported ({error})",
            "Run pip install 'satchel[eval]'; --text and --hellaswag work without it.",
        ) from None
