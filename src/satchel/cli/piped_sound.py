"""Sound from standard input or from a pipe. It is read more than once, so it is kept in a file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from satchel.errors import UsageError

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class NamedSound:
    """A recording as it was named, and the file that holds it."""

    name: str
    path: Path

    @property
    def shown(self) -> str:
        """As messages call it."""
        return "standard input" if self.name == STANDARD_INPUT else self.name

    @property
    def stem(self) -> str:
        """As files that are written of it begin."""
        return "stdin" if self.name == STANDARD_INPUT else Path(self.name).name


@contextmanager
def kept_pipes(names: Sequence[str]) -> Iterator[list[NamedSound]]:
    """The recordings of these names. Pipes are read to their end, into files that vanish after."""
    if names.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read once only", "Write - once.")
    with ExitStack() as stack:

        def kept(source: BinaryIO) -> Path:
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="satchel-sound-"))
            shutil.copyfileobj(source, file)
            file.flush()
            return Path(file.name)

        sounds = []
        for name in names:
            path = Path(name).expanduser()
            if name == STANDARD_INPUT:
                if sys.stdin.isatty():
                    raise UsageError("standard input is a terminal", "Pipe a recording into it.")
                path = kept(sys.stdin.buffer)
            elif path.is_fifo():
                with path.open("rb") as pipe:
                    path = kept(pipe)
            sounds.append(NamedSound(name, path))
        yield sounds
