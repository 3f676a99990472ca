"""Programs with payloads: written in their portable form, compiled, and written again with both.

The portable form stays in the file: it holds the embedding and the tokenizer, and it is what the
reference and emulators compute from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from satchel.backends.target import Compilation
from satchel.program.writer import ProgramWriter
from satchel.runtime.program import Program
from satchel.sources.cache import partial_folder
from satchel.sources.progress import Progress

_COPY_BLOCK = 8 << 20


def write_compiled(
    target: str,
    compilation: Compilation,
    write_portable: Callable[[Path], None],
    writer_with: Callable[[Mapping[str, Path]], ProgramWriter],
    output: Path,
    overwrite: bool,
    progress: Progress,
) -> None:
    """Compile and write a program."""
    with partial_folder(output.absolute().parent) as work:
        base = work / "base.satchel"
        write_portable(base)
        program = Program(base)
        made = work / "payload"
        made.mkdir()
        compiled = compilation.compile(program, made, progress)
        metadata = {
            **program.metadata,
            **compiled.found,
            "payloads": {target: dict(compiled.summary)},
        }
        writer = writer_with(compiled.files)
        writer.write(output, _copying(program), lambda: metadata, overwrite)


def _copying(program: Program) -> Callable[[Any, Any], Iterator[bytes]]:
    """Gives each weight's bytes as another program has them."""
    places = {w["name"]: w for w in program.weights}

    def encode(weight: Any, _: Any) -> Iterator[bytes]:
        info = places[weight.name]
        with program.path.open("rb") as file:
            for part in ("", "scales_"):
                left = info["codes_size" if not part else "scales_size"]
                file.seek(info[f"{part}offset"])
                while left:
                    block = file.read(min(left, _COPY_BLOCK))
                    left -= len(block)
                    yield block

    return encode
