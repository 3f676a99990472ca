"""A loaded program: what its file holds, and its methods, ready to call."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.encodings.encoding import Encoding
from satchel.errors import ChecksumError, ExecutionError, ProgramFormatError
from satchel.program.about import About, AboutLanguageModel, read_about
from satchel.program.metadata import wrong_values
from satchel.program.names import payload_name
from satchel.runtime.instance import CacheUsage, Instance, OneSequence
from satchel.runtime.method import Method

__all__ = ["CacheUsage", "Instance", "Method", "OneSequence", "Program", "load"]

_BLOCK = 8 << 20
_AGAIN = "Copy or export the file again."

VerifyProgress = Callable[[int, int], None]  # bytes done, bytes in all


class Program:
    """A program file, validated and mapped; its weights are not read until a method runs.

    >>> program = Program("model.satchel")
    >>> program.metadata["context"]
    64
    >>> program.method("kv_forward")(tokens=[65], position=[0]).shape
    (1, 320)
    """

    def __init__(
        self, path: str | os.PathLike[str], verify: bool = False, target: str | None = None
    ) -> None:
        self.path = Path(path)
        self._native = _native.Program.open(_system_name(path))
        if verify:
            self.verify()
        self._target = target
        if target is not None and target not in self.targets:
            self._require_portable(target)

    def reopened(self) -> Program:
        """The same file, opened once more."""
        return Program(self.path, target=self._target)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets that it can run on, the usual one first."""
        return tuple(self.about.targets) or (self.about.target,)

    def _require_portable(self, target: str) -> None:
        """Targets that run the portable methods take any program."""
        from satchel.backends import find_target

        if not find_target(target).portable:
            raise ExecutionError(
                f"{self.path} is not for {target}",
                f"It is for {', '.join(self.targets)}; export it with --target {target}.",
            )

    @property
    def target(self) -> str:
        """The one that it runs on: that which was chosen, or the usual one."""
        return self._target or self.targets[0]

    def __repr__(self) -> str:
        methods = ", ".join(str(method["name"]) for method in self.methods)
        return (
            f"<Program {self.about.name}, {self.size / 1e6:.1f} MB, methods {methods}, {self.path}>"
        )

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return int(self._native.size)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What the exporter wrote about the model: name, recipe, tokenizer, provenance, …"""
        try:
            document = json.loads(self.section("metadata"))
        except (ValueError, RecursionError) as error:
            message = f"the metadata is not JSON: {error}"
            raise self._metadata_error(message) from None
        if not isinstance(document, dict):
            raise self._metadata_error("the metadata is not a JSON object")
        for problem in wrong_values(document):
            raise self._metadata_error(f"the metadata's {problem}")
        return document

    @cached_property
    def about(self) -> About:
        """The metadata as the class of the program's kind."""
        return read_about(self.metadata)

    @property
    def is_language_model(self) -> bool:
        return isinstance(self.about, AboutLanguageModel)

    @property
    def language_model(self) -> AboutLanguageModel:
        """What a language model says of itself; of another program, what one has by default."""
        about = self.about
        return about if isinstance(about, AboutLanguageModel) else AboutLanguageModel()

    def _metadata_error(self, message: str) -> ProgramFormatError:
        offset = self._record("metadata")["offset"]
        return ProgramFormatError(message, "Export the file again.", "metadata", offset)

    @cached_property
    def sections(self) -> list[dict[str, Any]]:
        return list(self._native.sections())

    @cached_property
    def weights(self) -> list[dict[str, Any]]:
        """Name, shape, encoding and place of every weight."""
        return list(self._native.weights())

    @cached_property
    def methods(self) -> list[dict[str, Any]]:
        """Inputs, outputs and op counts of every method."""
        return list(self._native.methods())

    @cached_property
    def states(self) -> list[dict[str, Any]]:
        return list(self._native.states())

    def has_method(self, name: str) -> bool:
        return any(m["name"] == name for m in self.methods)

    def section(self, name: str) -> bytes:
        """A section's bytes, after checking its checksum."""
        record = self._record(name)
        data: bytes = self._native.section_bytes(name)
        if hashlib.sha256(data).digest() != record["digest"]:
            raise ChecksumError("the section's checksum is wrong", _AGAIN, name, record["offset"])
        return data

    def compiled_tokenizer(self) -> _native.Tokenizer | None:
        """The native tokenizer, over the mapped file; None if the program has none."""
        return _native.Tokenizer.of_program(self._native)

    def _record(self, name: str) -> dict[str, Any]:
        for record in self.sections:
            if record["name"] == name:
                return record
        known = ", ".join(s["name"] for s in self.sections)
        raise ExecutionError(f"a program has no section {name!r}", f"It has {known}.")

    def weight(self, name: str) -> NDArray[Any]:
        """A weight as the numbers that it stands for (dequantised)."""
        info = next((w for w in self.weights if w["name"] == name), None)
        if info is None:
            raise ExecutionError(f"there is no weight {name!r} in {self.path}")
        with self.path.open("rb") as file:
            codes, scales = (
                np.frombuffer(b"".join(_blocks(file.fileno(), offset, size)), np.uint8)
                for offset, size in (
                    (info["offset"], info["codes_size"]),
                    (info["scales_offset"], info["scales_size"]),
                )
            )
        encoding = Encoding(info["encoding"], info["group"])
        return encoding.decode(codes, scales, tuple(info["shape"]))

    def instance(self, threads: int = 0) -> Instance:
        """New states and threads over the same weights; 0 threads: one per core.

        It runs on the chip that the program is for, or on its emulator.
        """
        from satchel.backends import open_instance

        return open_instance(self, threads)

    @cached_property
    def _default_instance(self) -> Instance:
        return self.instance()

    def method(self, name: str = "forward") -> Method:
        """A method of this program's own instance."""
        return self._default_instance.method(name)

    def payload_names(self) -> list[str]:
        """The files that the program holds for its target."""
        prefix = payload_name(self.target, "")
        names = (str(w["name"]) for w in self.weights)
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def payload(self, file: str) -> bytes:
        """One of these files, after checking its checksum."""
        name = payload_name(self.target, file)
        info = next((w for w in self.weights if w["name"] == name), None)
        if info is None or info["encoding"] != "u8":
            message = f"there is no {file} for {self.target} in {self.path}"
            raise ProgramFormatError(message, "Export the file again.", "weights")
        with self.path.open("rb") as opened:
            data = b"".join(_blocks(opened.fileno(), info["offset"], info["codes_size"]))
        if hashlib.sha256(data).digest() != info["digest"]:
            message = f"the bytes of {file} are not those that were written"
            raise ChecksumError(message, _AGAIN, "weights", info["offset"])
        return data

    def verify(self, progress: VerifyProgress | None = None) -> None:
        """Read everything and check every checksum, the weights' included."""
        for record in self.sections:
            if record["name"] != "weights":
                self.section(record["name"])
        joined = hashlib.sha256(b"".join(w["digest"] for w in self.weights)).digest()
        place = self._record("weights")
        if joined != place["digest"]:
            message = "the weights' checksum is wrong"
            raise ChecksumError(message, _AGAIN, "weights", place["offset"])
        done = 0
        end = place["offset"]
        with self.path.open("rb") as file:
            for weight in self.weights:
                digest = hashlib.sha256()
                parts = [(weight["offset"], weight["codes_size"])]
                if weight["scales_size"]:
                    parts.append((weight["scales_offset"], weight["scales_size"]))
                for offset, size in parts:
                    file.seek(end)
                    if any(file.read(offset - end)):
                        raise ChecksumError("padding is not zero", _AGAIN, "weights", end)
                    for block in _blocks(file.fileno(), offset, size):
                        digest.update(block)
                        done += len(block)
                        if progress:
                            progress(done, place["size"])
                    end = offset + size
                if digest.digest() != weight["digest"]:
                    raise ChecksumError(
                        f"the bytes of the weight {weight['name']} are not those that were written",
                        _AGAIN,
                        "weights",
                        weight["offset"],
                    )

    @cached_property
    def checksum(self) -> str:
        """One digest that stands for the whole file, its weights included."""
        joined = b"".join(s["digest"] for s in self.sections)
        return hashlib.sha256(joined).hexdigest()


def _system_name(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file's name, which need not be UTF-8."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise ProgramFormatError(f"{path!r} is not a path", "Give the file another name.", "file")
    return name


def _blocks(file: int, offset: int, size: int) -> Iterator[bytes]:
    end = offset + size
    while offset < end:
        block = os.pread(file, min(_BLOCK, end - offset), offset)
        if not block:
            raise ProgramFormatError("the file ends too early", _AGAIN, "weights", offset)
        yield block
        offset += len(block)


def load(path: str | os.PathLike[str], verify: bool = False, target: str | None = None) -> Program:
    """Open a program file. ``verify`` also reads and checks all its weights.

    ``target`` is what it runs on ("vulkan", "cpu"), if not what it was exported for.

    >>> logits = load("model.satchel", verify=True).method("kv_forward")([65], [0])
    """
    return Program(path, verify, target)
