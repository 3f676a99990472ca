"""A package (.mlpackage): the program as Core ML's protocol buffers say it, and its weights."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import coremltools as ct
from coremltools.converters.mil.backend.mil.helper import (
    create_file_value_tensor,
    types_to_proto_primitive,
)
from coremltools.converters.mil.backend.mil.load import (
    CoreMLProtoExporter,
    MILProtoExporter,
    _add_classify_op,
)
from coremltools.converters.mil.mil import Function
from coremltools.converters.mil.mil import Program as MilProgram

from satchel.backends.coreml.blobs import BlobFile
from satchel.runtime.program import Program

_MODEL, _WEIGHTS = "com.apple.CoreML/model.mlmodel", "com.apple.CoreML/weights"
_WEIGHT_FILE = "@model_path/weights/weight.bin"


class _Exporter(MILProtoExporter):  # type: ignore[misc]
    """Writes where a constant lies, and not the constant."""

    blobs: BlobFile

    def get_milproto_value(self, var: Any) -> Any:
        """Small ones too: the builder was not shown their numbers."""
        if var.op.weight_id is not None:
            return self.create_file_value(var)
        return super().get_milproto_value(var)

    def create_file_value(self, var: Any) -> Any:
        key = var.op.weight_id
        assert key is not None, f"{var.name} is a constant without a name"
        kind = types_to_proto_primitive(var.sym_type.get_primitive())
        return create_file_value_tensor(_WEIGHT_FILE, self.blobs.offsets[key], var.val.shape, kind)


class Package:
    """The functions of a model, its weights, and what is said of it."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        blobs: BlobFile,
        version: int,
        said: Mapping[str, str],
        classes: Sequence[str] = (),
    ) -> None:
        self.blobs = blobs
        program = MilProgram()
        for name, function in functions.items():
            program.add_function(name, function)
        program.default_function_name = next(iter(functions))
        program.export_as_multifunction = len(functions) > 1
        classifier, label, probabilities = None, None, None
        if classes:
            classifier = ct.ClassifierConfig(list(classes))
            label, probabilities = _add_classify_op(program, classifier)
        exporter = _Exporter(program, "", version)
        exporter.blobs = blobs
        proto = exporter.export()
        whole = CoreMLProtoExporter(
            program, proto, label, probabilities, classifier, "mlprogram", "milinternal", version
        )
        self.spec = whole.export(version)
        about = self.spec.description.metadata
        about.shortDescription = said.get("description", "")
        for key, value in said.items():
            about.userDefined[key] = value

    @cached_property
    def _spec(self) -> bytes:
        data: bytes = self.spec.SerializeToString(deterministic=True)
        return data

    @cached_property
    def _manifest(self) -> bytes:
        def item(name: str, path: str, what: str) -> dict[str, str]:
            told = {"author": "com.apple.CoreML", "description": f"CoreML Model {what}"}
            return {**told, "name": name, "path": path}

        model, weights = (
            str(uuid.uuid5(uuid.NAMESPACE_URL, path)).upper() for path in (_MODEL, _WEIGHTS)
        )
        document = {
            "fileFormatVersion": "1.0.0",
            "itemInfoEntries": {
                model: item("model.mlmodel", _MODEL, "Specification"),
                weights: item("weights", _WEIGHTS, "Weights"),
            },
            "rootModelIdentifier": model,
        }
        return json.dumps(document, indent=4).encode() + b"\n"

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return len(self._spec) + len(self._manifest) + self.blobs.size

    def write(self, path: Path, program: Program, told: Callable[[int], None]) -> None:
        data = path / "Data"
        (data / _WEIGHTS).mkdir(parents=True)
        (path / "Manifest.json").write_bytes(self._manifest)
        (data / _MODEL).write_bytes(self._spec)
        self.blobs.write(data / _WEIGHTS / "weight.bin", program, told)


def version_of(system: str) -> int:
    """The version of the specification that a system reads.

    >>> version_of("iOS18")
    9
    """
    number: int = getattr(ct, f"_SPECIFICATION_VERSION_{system.upper().replace('IOS', 'IOS_')}")
    return number
