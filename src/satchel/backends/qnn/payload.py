"""What a program holds for the NPU: compiled binaries, and how they are fed.

The files lie among the program's weights under names that begin with ``qnn/``, so that the
program's checksums cover them. ``qnn/manifest.json`` tells the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from satchel.backends.qnn.annotate import Encodings
from satchel.backends.qnn.chips import find_chip
from satchel.errors import ChecksumError, ProgramFormatError, SatchelError
from satchel.quantize.static import ActivationEncoding
from satchel.runtime.program import Program

PREFIX = "qnn/"
MANIFEST = "manifest.json"
_AGAIN = "Export the file again."


@dataclass
class Manifest:
    """How the compiled methods are split, called and encoded."""

    target: str
    vendor: str  # the version of onnxruntime-qnn that compiled it
    bits: int  # of activations
    methods: dict[str, int]  # the tokens of each call
    cuts: list[int]
    shared: bool  # each shard is one binary for all methods
    encodings: Encodings = field(default_factory=dict)
    shards: list[dict[str, Any]] = field(default_factory=list)  # bytes, seconds, memory, files

    def model_file(self, shard: int, method: str) -> str:
        return f"shard{shard}.{method}.onnx"

    def to_json(self) -> str:
        encodings = {n: [e.scale, e.zero_point, e.bits] for n, e in self.encodings.items()}
        document = {**vars(self), "encodings": encodings}
        return json.dumps(document, indent=1)

    @staticmethod
    def from_json(text: bytes) -> Manifest:
        """Read what may come from anyone: every field is checked."""
        try:
            document = json.loads(text)
            encodings = {
                str(name): ActivationEncoding(float(scale), int(zero), int(bits))
                for name, (scale, zero, bits) in document["encodings"].items()
            }
            manifest = Manifest(
                str(document["target"]),
                str(document["vendor"]),
                int(document["bits"]),
                {str(k): int(v) for k, v in document["methods"].items()},
                [int(cut) for cut in document["cuts"]],
                bool(document["shared"]),
                encodings,
                [dict(shard) for shard in document["shards"]],
            )
            find_chip(manifest.target)
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            OverflowError,
            SatchelError,
        ) as error:
            raise damaged(f"the NPU's manifest is not readable: {error}") from None
        if manifest.bits not in (8, 16) or not manifest.methods:
            raise damaged("the NPU's manifest has no methods or a strange number of bits")
        if any(not 1 <= tokens <= 1 << 16 for tokens in manifest.methods.values()):
            raise damaged("the NPU's manifest has methods of a strange length")
        return manifest


def damaged(message: str) -> ProgramFormatError:
    return ProgramFormatError(message, _AGAIN, "weights")


def read_manifest(program: Program) -> Manifest:
    """The manifest of a program that was exported for the NPU."""
    return Manifest.from_json(read_payload(program, MANIFEST))


def payload_names(program: Program) -> list[str]:
    names = [str(w["name"]) for w in program.weights]
    return [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]


def read_payload(program: Program, name: str) -> bytes:
    """One of the files, after checking its checksum."""
    info = next((w for w in program.weights if w["name"] == PREFIX + name), None)
    if info is None or info["encoding"] != "u8":
        raise damaged(f"there is no {name} for the NPU in {program.path}")
    data = np.fromfile(program.path, np.uint8, info["codes_size"], offset=info["offset"]).tobytes()
    if hashlib.sha256(data).digest() != info["digest"]:
        raise ChecksumError(
            f"the bytes of {name} are not those that were written",
            "Copy or export the file again.",
            "weights",
            info["offset"],
        )
    return data


def extract(program: Program, folder: Path) -> list[Path]:
    """Write all files but the manifest into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in payload_names(program):
        if name == MANIFEST:
            continue
        if Path(name).name != name or name.startswith("."):
            raise damaged(f"{name!r} is not a file name")
        (folder / name).write_bytes(read_payload(program, name))
        written.append(folder / name)
    return written


def named_files(files: Mapping[str, Path]) -> dict[str, Path]:
    """Files under the names that they get in a program."""
    return {PREFIX + name: path for name, path in sorted(files.items())}
