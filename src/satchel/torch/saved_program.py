"""What ``torch.export.save`` wrote: a .pt2 file, read without running what is pickled in it."""

from __future__ import annotations

import warnings
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from satchel.errors import CheckpointError
from satchel.machine import environment

SUFFIX = ".pt2"
_OBJECTS = ("custom_obj_", "opaque_obj_")  # files that torch unpickles with code of their choice
_ONLY_WEIGHTS = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load_saved_program(path: Path) -> Any:
    """The ``ExportedProgram`` of a file; CheckpointError if it is none, or holds objects."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist", "Give a file of torch.export.save.")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.rsplit("/", 1)[-1] for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError) as error:
        raise CheckpointError(f"{path} is no .pt2 file: {error}", "Save it again.") from None
    if any(name.startswith(_OBJECTS) for name in names):
        raise CheckpointError(
            f"{path} holds pickled objects, which could run anything",
            "Give satchel.export the module or the ExportedProgram itself.",
        )
    try:
        with warnings.catch_warnings(), _only_weights():
            warnings.simplefilter("ignore")
            return torch.export.load(path)
    except Exception as error:  # torch raises many kinds of its own
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"{path} cannot be loaded ({type(error).__name__}: {reason})",
            "Save it again with torch.export.save, by a torch as new as the one here.",
        ) from None


def _only_weights() -> AbstractContextManager[None]:
    """Tensors are unpickled as such, whatever ``torch.export.load`` asks for."""
    return environment(_ONLY_WEIGHTS, "1")
