"""Programs that are made on first use and kept: what ``satchel chat NAME`` runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from satchel.checkpoints import open_checkpoint
from satchel.errors import ProgramFormatError
from satchel.exporter.checkpoint import model_name
from satchel.exporter.options import ExportOptions
from satchel.exporter.speech import WHISPER, prepare_any_export, with_speech_recipe
from satchel.exporter.usual import with_usual_recipe
from satchel.program.format import MAGIC
from satchel.runtime.program import Program
from satchel.sources import known_entry, pull
from satchel.sources.cache import file_facts, locked, programs_folder
from satchel.sources.progress import Progress


def is_program(path: Path) -> bool:
    """Whether a file says that it is a program; the loader decides whether it is a good one."""
    if path.suffix == ".satchel":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def usual_options(checkpoint: Path) -> ExportOptions:
    with open_checkpoint(checkpoint) as opened:
        if opened.config.get("model_type") == WHISPER:
            return with_speech_recipe(ExportOptions())
        return with_usual_recipe(ExportOptions(), opened)


def program_for(
    source: str | os.PathLike[str],
    options: ExportOptions | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """The program of a path, a name or a checkpoint; it is exported if it is not there yet.

    >>> program_for("tiny-llama").parent.name
    'programs'
    """
    if is_program(Path(source)):
        return Path(source)
    checkpoint = pull(source, progress)
    if options is None:
        entry = None if Path(source).exists() else known_entry(os.fspath(source))
        options = ExportOptions(**entry.advised) if entry else usual_options(checkpoint)
    folder = programs_folder()
    target = "+".join(target.name.replace(":", "-") for target in options.targets)
    stem = f"{model_name(source, checkpoint)}-{target}-{options.recipe_name}"
    path = folder / f"{stem}-{_fingerprint(checkpoint, options)}.satchel"
    if not _is_good(path):
        with locked(folder):
            if not _is_good(path):
                if path.exists():
                    say(f"{path.name} in the cache is damaged, and is made again.")
                    path.unlink()
                recipe = options.make_recipe().describe()
                say(f"Exporting {checkpoint.name} for the first time ({recipe}) into {folder}")
                prepare_any_export(source, options, progress).run(path)
    return path


def _is_good(path: Path) -> bool:
    """Whether a kept program is there and whole, its weights' bytes aside."""
    if not path.exists():
        return False
    try:
        program = Program(path)
        for section in ("tokenizer", "metadata"):
            program.section(section)
    except ProgramFormatError:
        return False
    return True


def _fingerprint(checkpoint: Path, options: ExportOptions) -> str:
    """Changes with the checkpoint, the options and the version that exports."""
    chosen = sorted(asdict(options).items())
    facts: list[object] = [version("satchel"), chosen, *file_facts(checkpoint)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
