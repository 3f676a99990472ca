"""Messages between the process of Satchel and the one that loads Qualcomm's libraries."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Message = dict[str, Any]
_LENGTH = struct.Struct("<Q")


def send(stream: IO[bytes], message: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """A JSON object, and arrays by name."""
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    shapes = [[name, a.dtype.name, list(a.shape)] for name, a in packed.items()]
    head = json.dumps({"message": message, "arrays": shapes}).encode()
    stream.write(_LENGTH.pack(len(head)) + head)
    for array in packed.values():
        stream.write(array.tobytes())
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Message, dict[str, Array]] | None:
    """What was sent, or None if the other side is gone."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    head = stream.read(*_LENGTH.unpack(length))
    try:
        document = json.loads(head)
    except ValueError:
        return None
    arrays = {}
    for name, dtype, shape in document["arrays"]:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        data = stream.read(size)
        if len(data) < size:
            return None
        arrays[name] = np.frombuffer(data, dtype).reshape(shape)
    return document["message"], arrays
