"""A program on the NPU, or on its emulator: what the child process holds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.payload import Manifest, extract, read_manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.vendor import is_emulated, open_session
from satchel.runtime.program import Program

Array = NDArray[Any]


class LoadedProgram:
    """Sessions of all shards and methods, and the runner that feeds them.

    On the NPU, they are the program's own binaries. The emulator cannot load binaries that share
    weights, so for it each method is compiled by itself from the same graphs and weights; that is
    done once and kept in ``folder``.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        program = Program(path)
        manifest = read_manifest(program)
        prepared = PreparedProgram.of(program, manifest)
        opened = _for_emulator if is_emulated() else _for_device
        sessions = opened(program, prepared, manifest, folder)

        def execute(shard: int, method: str, codes: Mapping[str, Array]) -> dict[str, Array]:
            session = sessions[shard, method]
            names = [output.name for output in session.get_outputs()]
            return dict(zip(names, session.run(names, dict(codes)), strict=True))

        self.runner = prepared.runner(execute)


Sessions = dict[tuple[int, str], Any]


def _for_device(
    program: Program, prepared: PreparedProgram, manifest: Manifest, folder: Path
) -> Sessions:
    extract(program, folder)
    chip = find_chip(manifest.target)
    return {
        (shard, name): open_session(
            folder / manifest.model_file(shard, name),
            chip,
            share="more" if manifest.shared else None,
        )
        for shard in range(len(manifest.cuts) + 1)
        for name in prepared.methods
    }


def _for_emulator(
    program: Program, prepared: PreparedProgram, manifest: Manifest, folder: Path
) -> Sessions:
    chip = find_chip(manifest.target)
    folder.mkdir(parents=True, exist_ok=True)
    sessions: Sessions = {}
    for shard in range(len(manifest.cuts) + 1):
        for name in prepared.methods:
            kept = folder / manifest.model_file(shard, name)
            if kept.exists():
                sessions[shard, name] = open_session(kept, chip)
                continue
            with tempfile.TemporaryDirectory(dir=folder) as work:
                source = prepared.write_models(shard, Path(work), [name])[name]
                made = Path(work) / kept.name
                sessions[shard, name] = open_session(source, chip, made)
                for file in Path(work).glob("*_qnn.bin"):
                    file.replace(folder / file.name)
                made.replace(kept)  # last: that it is there says that all is
    return sessions
