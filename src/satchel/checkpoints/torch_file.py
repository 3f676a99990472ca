"""Files of torch.save: a zip archive of one pickle and the tensors' bytes, not compressed."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import replace
from typing import Any

from satchel.checkpoints.decoding import FLOATS
from satchel.checkpoints.stored import StoredTensor, TransposedTensor
from satchel.checkpoints.torch_pickle import TorchTensor, read_torch_pickle
from satchel.checkpoints.weightfile import WeightFile
from satchel.errors import CheckpointError

# The pickle of a 70B model's optimiser state is some megabytes; more is an attack.
MAX_PICKLE_BYTES = 64 << 20
LOCAL_HEADER_BYTES = 30


class TorchArchive:
    """An opened archive: its top-level value, and where its tensors lie."""

    def __init__(self, file: WeightFile) -> None:
        self.file = file
        try:
            with zipfile.ZipFile(file.path) as archive:
                self._members = {member.filename: member for member in archive.infolist()}
        except (
            zipfile.BadZipFile,
            OSError,
            ValueError,
            struct.error,
            NotImplementedError,
        ) as error:
            raise CheckpointError(
                f"{file.path} is not an archive of torch.save: {error}",
                "It is damaged, or older than torch 1.6: save it again with a newer torch",
            ) from error
        pickles = [name for name in self._members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(
                f"{file.path} has {len(pickles)} members data.pkl where one is expected",
                "Use a file that torch.save wrote",
            )
        self._root = pickles[0][: -len("data.pkl")]
        if self._read(self._root + "byteorder", default=b"little") != b"little":
            raise CheckpointError(
                f"{file.path} was saved on a big-endian machine",
                "Save it again on a little-endian one",
            )
        self.value: Any = read_torch_pickle(self._read(pickles[0]), file.path)

    def readable(self, name: str, tensor: TorchTensor) -> StoredTensor | TransposedTensor:
        """A tensor that may also be a matrix saved by columns."""
        if len(tensor.shape) == 2 and tensor.stride == (1, tensor.shape[0]) and tensor.shape[1] > 1:
            transposed = replace(tensor, shape=tensor.shape[::-1], stride=tensor.stride[::-1])
            return TransposedTensor(self.stored(name, transposed))
        return self.stored(name, tensor)

    def stored(self, name: str, tensor: TorchTensor) -> StoredTensor:
        """Where a tensor's bytes lie in the file."""
        storage = tensor.storage
        expected = storage.count * storage.item_size
        offset, size = self._span(f"{self._root}data/{storage.key}", f"tensor {name}")
        elements = 1
        for length, stride in zip(tensor.shape[::-1], tensor.stride[::-1], strict=True):
            if length > 1 and stride != elements:
                raise CheckpointError(
                    f"{self.file.path}: tensor {name} is not contiguous (strides {tensor.stride})",
                    "Save it again with .contiguous()",
                )
            elements *= length
        if size != expected or tensor.offset + elements > storage.count:
            raise CheckpointError(
                f"{self.file.path}: tensor {name} of shape {list(tensor.shape)} does not fit in "
                f"its storage of {size} bytes",
                "The file is damaged: fetch it again",
            )
        return StoredTensor(
            self.file,
            offset + tensor.offset * storage.item_size,
            tensor.shape,
            storage.dtype,
            FLOATS.get(storage.dtype),
        )

    def _read(self, member: str, default: bytes | None = None) -> bytes:
        if default is not None and member not in self._members:
            return default
        offset, size = self._span(member, member)
        if size > MAX_PICKLE_BYTES:
            raise CheckpointError(
                f"{self.file.path}: {member} has {size} bytes, more than any checkpoint needs",
                "Use a safetensors checkpoint",
            )
        return self.file.read(offset, size)

    def _span(self, member: str, what: str) -> tuple[int, int]:
        """Offset and size of a member's bytes."""
        info = self._members.get(member)
        if info is None or info.header_offset < 0:
            raise CheckpointError(
                f"{self.file.path} lacks the data of {what} ({member})",
                "The file is damaged: fetch it again",
            )
        header = self.file.read(info.header_offset, LOCAL_HEADER_BYTES)
        offset = info.header_offset + LOCAL_HEADER_BYTES
        if len(header) == LOCAL_HEADER_BYTES:
            offset += sum(struct.unpack_from("<HH", header, 26))  # name and extra field
        if (
            info.compress_type != zipfile.ZIP_STORED
            or not header.startswith(b"PK\x03\x04")
            or offset + info.file_size > self.file.size
        ):
            raise CheckpointError(
                f"{self.file.path}: the data of {what} is compressed or cut off",
                "Use a file as torch.save wrote it",
            )
        return offset, info.file_size


def read_state_dict(file: WeightFile) -> dict[str, StoredTensor]:
    """All tensors of a file that holds a plain state dict (pytorch_model.bin)."""
    archive = TorchArchive(file)
    return state_dict_tensors(archive, archive.value)


def state_dict_tensors(archive: TorchArchive, value: Any) -> dict[str, StoredTensor]:
    """The tensors of a state dict within an archive."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise CheckpointError(
            f"{archive.file.path} does not hold tensors by name",
            "Save the model's state_dict(), not the model",
        )
    return {
        name: archive.stored(name, tensor)
        for name, tensor in value.items()
        if isinstance(tensor, TorchTensor)
    }
