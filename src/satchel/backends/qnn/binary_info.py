"""What a context binary says of itself, read by Qualcomm's system library. Only the worker does.

The library is given the bytes and hands back a structure of its public C interface; the classes
here mirror the parts of it that are looked at.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satchel.errors import BackendError

LIBRARY = "libQnnSystem.so"
_INFO_VERSION = 3
_DTYPES = {0x408: "uint8", 0x416: "uint16", 0x216: "float16"}  # unsigned fixed point, and floats


class _Version(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("patch", c.c_uint32)]


class _Quantization(c.Structure):
    _fields_ = [
        ("defined", c.c_uint32),
        ("kind", c.c_uint32),
        ("scale", c.c_float),
        ("offset", c.c_int32),
        ("rest", c.c_uint64 * 3),
    ]


class _TensorBody(c.Structure):
    _fields_ = [
        ("id", c.c_uint32),
        ("name", c.c_char_p),
        ("type", c.c_uint32),
        ("format", c.c_uint32),
        ("dtype", c.c_uint32),
        ("quantization", _Quantization),
        ("rank", c.c_uint32),
        ("dimensions", c.POINTER(c.c_uint32)),
        ("memory", c.c_uint32),
        ("buffer", c.c_uint64 * 2),
        ("dynamic", c.c_void_p),
        ("sparse", c.c_uint32 * 3),
        ("produced", c.c_uint8),
    ]


class _Tensor(c.Structure):
    _fields_ = [("version", c.c_uint32), ("body", _TensorBody)]


class _GraphBody(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("input_count", c.c_uint32),
        ("inputs", c.POINTER(_Tensor)),
        ("output_count", c.c_uint32),
        ("outputs", c.POINTER(_Tensor)),
        ("updateable_count", c.c_uint32),
        ("updateable", c.c_void_p),
        ("blob_size", c.c_uint32),
        ("blob", c.c_void_p),
        ("first_op", c.c_uint32),
        ("last_op", c.c_uint32),
    ]


class _Graph(c.Structure):
    _fields_ = [("version", c.c_uint32), ("body", _GraphBody)]


class _BinaryBody(c.Structure):
    _fields_ = [
        ("backend", c.c_uint32),
        ("build", c.c_char_p),
        ("core_api", _Version),
        ("backend_api", _Version),
        ("soc", c.c_char_p),
        ("blob_version", _Version),
        ("blob_size", c.c_uint64),
        ("tensor_count", c.c_uint32),
        ("tensors", c.POINTER(_Tensor)),
        ("graph_count", c.c_uint32),
        ("graphs", c.POINTER(_Graph)),
        ("platform", c.c_void_p),
        ("metadata_size", c.c_uint32),
        ("metadata", c.c_void_p),
        ("soc_model", c.c_uint32),
    ]


class _Binary(c.Structure):
    _fields_ = [("version", c.c_uint32), ("body", _BinaryBody)]


class _Interface(c.Structure):
    _fields_ = [
        ("backend", c.c_uint32),
        ("name", c.c_char_p),
        ("version", _Version),
        ("create", c.c_void_p),
        ("binary_info", c.c_void_p),
        ("metadata", c.c_void_p),
        ("free", c.c_void_p),
    ]


_CREATE = c.CFUNCTYPE(c.c_uint64, c.POINTER(c.c_void_p))
_INFO = c.CFUNCTYPE(
    c.c_uint64,
    c.c_void_p,
    c.c_void_p,
    c.c_uint64,
    c.POINTER(c.POINTER(_Binary)),
    c.POINTER(c.c_uint64),
)
_FREE = c.CFUNCTYPE(c.c_uint64, c.c_void_p)


def read_binary(path: Path) -> dict[str, Any]:
    """``soc_model``, ``build`` and, by name, the ``graphs`` with their inputs and outputs.

    Each of these has ``shape``, ``dtype``, ``scale`` and ``zero_point``.
    """
    import onnxruntime_qnn

    library = c.CDLL(str(Path(onnxruntime_qnn.__file__).parent / LIBRARY))
    library.QnnSystemInterface_getProviders.restype = c.c_uint64
    found, count = c.POINTER(c.POINTER(_Interface))(), c.c_uint32()
    _succeed(library.QnnSystemInterface_getProviders(c.byref(found), c.byref(count)), path)
    interface = found[0].contents
    handle = c.c_void_p()
    _succeed(_CREATE(interface.create)(c.byref(handle)), path)
    try:
        data = path.read_bytes()
        buffer = c.create_string_buffer(data, len(data))
        told, size = c.POINTER(_Binary)(), c.c_uint64()
        ask = _INFO(interface.binary_info)
        _succeed(ask(handle, buffer, len(data), c.byref(told), c.byref(size)), path)
        binary = told.contents
        if binary.version != _INFO_VERSION:
            raise BackendError(
                f"{path.name} describes itself in version {binary.version}, and {_INFO_VERSION} "
                "is known here",
                "Use the onnxruntime-qnn that satchel[qnn] names.",
            )
        body = binary.body
        graphs = [body.graphs[index].body for index in range(body.graph_count)]
        return {
            "soc_model": body.soc_model,
            "build": (body.build or b"").decode(),
            "graphs": {
                graph.name.decode(): {
                    "inputs": _tensors(graph.inputs, graph.input_count),
                    "outputs": _tensors(graph.outputs, graph.output_count),
                }
                for graph in graphs
            },
        }
    finally:
        _FREE(interface.free)(handle)


def _tensors(listed: Any, count: int) -> dict[str, Any]:
    found = {}
    for index in range(count):
        body = listed[index].body
        found[body.name.decode()] = {
            "shape": [body.dimensions[axis] for axis in range(body.rank)],
            "dtype": _DTYPES.get(body.dtype, hex(body.dtype)),
            "scale": body.quantization.scale,
            "zero_point": -body.quantization.offset,
        }
    return found


def _succeed(status: int, path: Path) -> None:
    if status:
        raise BackendError(
            f"Qualcomm's system library cannot read {path.name} (status {status & 0xFFFF})",
            "Export the program again.",
            status & 0xFFFF,
        )


# How far scales may differ, relatively. Where a function's range is fixed, as a sigmoid's, the
# compiler has 2^-16 for 1/65535, which is one code at the end of the range.
_TOLERANCE = {"uint8": 1e-6, "uint16": 1.6e-5}


def differences(manifest: Mapping[str, Any], binary: Mapping[str, Any]) -> list[str]:
    """Where a graph in a binary is not the one that the manifest describes, in words.

    >>> one = {"name": "x", "shape": [2], "dtype": "uint8", "scale": 0.5, "zero_point": 3}
    >>> told = {"inputs": {"x": {**one, "shape": [3]}}, "outputs": {}}
    >>> differences({"inputs": [one], "outputs": []}, told)
    ['x has the shape [3] and not [2]']
    """
    found = []
    for side in ("inputs", "outputs"):
        known, has = {one["name"]: one for one in manifest[side]}, binary[side]
        found += [f"{name} is not in it" for name in known if name not in has]
        found += [f"{name} is in it" for name in has if name not in known]
        for name in known.keys() & has.keys():
            floats = known[name]["dtype"] == "float16"  # they have no steps
            for key in ("shape", "dtype") if floats else ("shape", "dtype", "zero_point"):
                if has[name][key] != known[name][key]:
                    found.append(
                        f"{name} has the {key} {has[name][key]} and not {known[name][key]}"
                    )
            if floats:
                continue
            wanted = known[name]["scale"]
            tolerance = _TOLERANCE.get(known[name]["dtype"], 1e-6)
            if abs(has[name]["scale"] - wanted) > tolerance * abs(wanted):
                found.append(f"{name} has the scale {has[name]['scale']} and not {wanted}")
    return found
