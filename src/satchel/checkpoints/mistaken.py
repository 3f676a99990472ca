"""What people give in the place of a checkpoint, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from satchel.checkpoints.adapter import CONFIG as ADAPTER
from satchel.errors import CheckpointError
from satchel.files import FETCH_LFS, LFS_POINTER, open_regular
from satchel.program.format import MAGIC as PROGRAM

_LONGEST_POINTER = 1024
_OF_CHECKPOINTS = (".safetensors", ".bin", ".pth", ".pt", ".gguf", ".json", ".model")


def mistaken(path: Path) -> CheckpointError | None:
    """What is wrong with a path that could not be opened, where what lies there tells it."""
    if not path.is_file() and not path.is_dir():  # a pipe, which its reader has told
        return None
    files = [path] if path.is_file() else sorted(path.iterdir())
    files = [file for file in files if file.suffix in _OF_CHECKPOINTS or file == path]
    for file in files:
        if not file.exists():
            return CheckpointError(f"{file} is a link to nothing", "Fetch the whole checkpoint")
        if _start(file).startswith(LFS_POINTER):
            return CheckpointError(f"{file} is only a pointer of Git LFS", FETCH_LFS)
    return _mistaken_file(path) if path.is_file() else _mistaken_folder(path)


def _start(file: Path) -> bytes:
    if not file.is_file() or file.stat().st_size > _LONGEST_POINTER:
        return b""
    with open(file, "rb", opener=open_regular) as opened:
        return opened.read(len(LFS_POINTER))


def _mistaken_file(path: Path) -> CheckpointError | None:
    with open(path, "rb", opener=open_regular) as opened:
        is_program = opened.read(len(PROGRAM)) == PROGRAM
    if not is_program:
        return None
    advice = "It runs as it is; to have another one, export the checkpoint that it was made of"
    return CheckpointError(f"{path} is a program already", advice)


def _mistaken_folder(folder: Path) -> CheckpointError | None:
    if (folder / ADAPTER).is_file() and not (folder / "config.json").exists():
        return CheckpointError(
            f"{folder} is an adapter, not a whole model",
            "Export the model that it was trained for, with --adapter NAME=FOLDER",
        )
    shards = sorted(file.name for file in folder.glob("*.safetensors"))
    if len(shards) > 1 and not (folder / "model.safetensors.index.json").is_file():
        return CheckpointError(
            f"{folder} has {len(shards)} .safetensors files ({shards[0]}, …), and no index of them",
            "Fetch model.safetensors.index.json too, or give the path of one of them",
        )
    if found := sorted(folder.glob("*.onnx")):
        return CheckpointError(
            f"{folder} has an ONNX model in it", f"Give the path of the file: {found[0]}"
        )
    return None
