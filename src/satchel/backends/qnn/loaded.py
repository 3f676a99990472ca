"""A program on the NPU, or on its emulator: what the child process holds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from satchel.backends.qnn.chips import find_chip
from satchel.backends.qnn.manifest import Manifest, Shard, damaged
from satchel.backends.qnn.payload import extract, read_manifest
from satchel.backends.qnn.prepared import PreparedProgram
from satchel.backends.qnn.profile import ProfileFiles
from satchel.backends.qnn.runner import Runner
from satchel.backends.qnn.speech_runner import make_runner
from satchel.backends.qnn.vendor import is_emulated, open_session
from satchel.runtime.program import Program

Array = NDArray[Any]
Sessions = dict[tuple[int, str], Any]


def load_program(
    path: Path, target: str, folder: Path, profile: ProfileFiles | None = None
) -> Runner:
    """Opens sessions of all shards and methods; the runner feeds them.

    They are the program's own binaries. Only the emulator cannot load binaries that share
    weights, so for it each method is compiled by itself from the same graphs and weights; that is
    done once and kept in ``folder``.
    """
    program = Program(path, target=target)
    manifest = read_manifest(program)
    opener = _Opener(manifest, profile)
    if is_emulated() and manifest.shared:
        sessions = _compiled_apart(program, manifest, folder, opener)
    else:
        sessions = _own_binaries(program, manifest, opener)
    for (number, name), session in sessions.items():
        _check(session, manifest.methods[name].shards[number])

    def execute(number: int, name: str, codes: Mapping[str, Array]) -> dict[str, Array]:
        names = [tensor.name for tensor in manifest.methods[name].shards[number].outputs]
        return dict(zip(names, sessions[number, name].run(names, dict(codes)), strict=True))

    return make_runner(program, manifest.methods, execute)


def _check(session: Any, shard: Shard) -> None:
    """A session must take and give what the manifest says of it."""
    for found, known in (
        (session.get_inputs(), shard.inputs),
        (session.get_outputs(), shard.outputs),
    ):
        has = {one.name: (tuple(one.shape), one.type) for one in found}
        says = {t.name: (t.shape, f"tensor({t.encoding.dtype.name})") for t in known}
        if has != says:
            raise damaged(f"the manifest does not describe {shard.model}")


@dataclass(frozen=True)
class _Opener:
    """Opens sessions as a manifest says, and with a profile if one is wanted."""

    manifest: Manifest
    profile: ProfileFiles | None

    def open(
        self, number: int, method: str, model: Path, made: Path | None = None, share: str = ""
    ) -> Any:
        chip, settings = find_chip(self.manifest.target), self.manifest.settings
        file = self.profile.file(number, method) if self.profile else None
        return open_session(model, chip, made, share or None, settings, file)


def _own_binaries(program: Program, manifest: Manifest, opener: _Opener) -> Sessions:
    share = "more" if manifest.shared else ""
    with tempfile.TemporaryDirectory() as folder:
        extract(program, Path(folder))
        return {
            (number, name): opener.open(number, name, Path(folder) / shard.model, share=share)
            for name, method in manifest.methods.items()
            for number, shard in enumerate(method.shards)
        }


def _compiled_apart(
    program: Program, manifest: Manifest, folder: Path, opener: _Opener
) -> Sessions:
    folder.mkdir(parents=True, exist_ok=True)
    prepared: PreparedProgram | None = None
    sessions: Sessions = {}
    for name, method in manifest.methods.items():
        for number, shard in enumerate(method.shards):
            kept = folder / shard.model
            if kept.exists():
                sessions[number, name] = opener.open(number, name, kept)
                continue
            prepared = prepared or PreparedProgram.of(program, manifest)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                source = prepared.write_models(number, Path(work), [name])[name]
                made = Path(work) / kept.name
                sessions[number, name] = opener.open(number, name, source, made)
                for file in Path(work).glob("*_qnn.bin"):
                    file.replace(folder / file.name)
                made.replace(kept)  # last: that it is there says that all is
    return sessions
