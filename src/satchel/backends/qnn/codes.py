"""Qualcomm's error codes, with what they mean and what to do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from satchel.errors import BackendError


@dataclass(frozen=True)
class Cause:
    name: str
    meaning: str
    advice: str


_VERSION = "Use the onnxruntime-qnn that the program was made with, or export it again."
_FEWER = "Split the model with a larger --num-sharding, or choose a smaller --context."

CODES: dict[int, Cause] = {
    1000: Cause(
        "NOT_SUPPORTED",
        "the backend cannot do this",
        "Binaries with shared weights load on a phone, not in the emulator.",
    ),
    1002: Cause("MEM_ALLOC", "memory for the graph could not be had", _FEWER),
    1003: Cause("SYSTEM", "the operating system refused a call", "See the device's own log."),
    1004: Cause("INVALID_ARGUMENT", "an argument does not fit", "Export the program again."),
    1005: Cause(
        "OPERATION_NOT_PERMITTED",
        "the process may not do this on the NPU",
        "Let it use an unsigned process domain, or have the chip's library (Skel) signed.",
    ),
    1006: Cause(
        "PLATFORM_NOT_SUPPORTED",
        "this machine has no such NPU",
        "Export for the chip of this machine; satchel doctor names what is there.",
    ),
    1007: Cause(
        "SYSTEM_COMMUNICATION",
        "the NPU does not answer",
        "Restart the device; check that the user may open /dev/fastrpc-cdsp.",
    ),
    1008: Cause(
        "LOADING_BINARIES",
        "a library of the NPU could not be loaded",
        "Set ADSP_LIBRARY_PATH to the folder with the libraries that the kit lists.",
    ),
    1009: Cause(
        "RESOURCE_UNAVAILABLE",
        "all of the NPU's memory or sessions are taken",
        f"Close other programs that use the NPU. {_FEWER}",
    ),
    1010: Cause("INCOMPATIBLE_BINARIES", "libraries of two versions are mixed", _VERSION),
    1100: Cause("GENERAL", "no cause was given", "See the device's own log."),
    3110: Cause(
        "OP_PACKAGE_VALIDATION_FAILURE",
        "an op was given a type or a shape that this chip does not take",
        "Report the op that the message names; another recipe may avoid it.",
    ),
    5000: Cause("CONTEXT_INVALID_ARGUMENT", "the binary was made by a newer version", _VERSION),
    5003: Cause("CONTEXT_NOT_FINALIZED", "the graph before it did not compile", _FEWER),
    5004: Cause("CONTEXT_BINARY_VERSION", "the binary is of another version", _VERSION),
    5005: Cause(
        "CONTEXT_CREATE_FROM_BINARY",
        "the binary could not be loaded",
        "Export for the chip that is in this device; each binary runs on its own chip only.",
    ),
    5007: Cause(
        "CONTEXT_GET_BINARY_FAILED",
        "the compiled graphs could not be written as a binary",
        f"It is too large for one, or memory or disk are full. {_FEWER}",
    ),
    5010: Cause(
        "CONTEXT_INVALID_CONFIG",
        "the binary asks for something that this chip or version does not have",
        _VERSION,
    ),
    6001: Cause("GRAPH_EXECUTE", "the NPU stopped while it computed", "Restart the device."),
    6005: Cause(
        "GRAPH_INVALID_OP_CONFIG",
        "an op could not be added, mostly because one before it was refused",
        "Report it with the lines of the log before it, which name the first op.",
    ),
    6031: Cause("GRAPH_ABORTED", "the computation was stopped", "Try it again."),
    7005: Cause(
        "TENSOR_UNSUPPORTED_TENSOR_PARAM",
        "a tensor has a type or a size that this chip does not take",
        "Shapes must be fixed (export without dynamic_shapes), and integers have 8 or 16 bits.",
    ),
    14001: Cause(
        "DEVICE_INVALID_CONFIG",
        "the libraries do not fit each other or the chip, or may not open the NPU",
        "Use all libraries from one onnxruntime-qnn, name the right chip, and on Android declare "
        "libcdsprpc.so as a native library.",
    ),
    30010: Cause(
        "SYSTEM_CONTEXT",
        "what was given is no context binary, or the runner was built without this backend",
        "Give it the _qnn.bin of the kit; build the runner with Qualcomm's backend, and use the "
        "libraries of the version that the kit's libraries.txt names.",
    ),
}

# What tells more than its code, or has none: a pattern, and its cause.
PHRASES: tuple[tuple[str, Cause], ...] = (
    (
        r"unsupported config option 2\b",
        Cause(
            "UNSUPPORTED_CONFIG_OPTION",
            "several contexts were asked to share one group, which these libraries do not know",
            "Load the shards without a group (no spill-fill sharing between contexts), or with "
            f"libraries as new as the binary. {_VERSION}",
        ),
    ),
    (
        r"context group \d+ does not exist",
        Cause(
            "CONTEXT_GROUP",
            "a shard was loaded into a group of contexts whose first is not there",
            "Load the shards in the manifest's order in one process, and keep the first open until "
            "all are loaded; or load each without a group.",
        ),
    ),
    (
        r"fastrpc memory map|failed to map weights",
        Cause(
            "MEM_MAP",
            "the NPU could not map a buffer of weights: its addresses end at 4 GB for one process, "
            "and much less is free in one piece",
            _FEWER,
        ),
    ),
    (
        r"error 0x14\b|missing operator",
        Cause(
            "OPERATOR_MISSING",
            "the runner lacks an operator that the file's CPU part uses",
            "Build the runner with it, or run the file with satchel run, which has all.",
        ),
    ),
)

# "Error code: 6001", "err 1002", "error code 3110", "with err 0x138b"
_NUMBER = re.compile(r"(?:error code|err(?:or)?)[:=\s]+(0x[0-9a-f]+|\d{4,5})\b", re.IGNORECASE)


def find_code(text: str) -> int | None:
    """The first of Qualcomm's codes in a message or a log.

    >>> find_code("Failed to finalize graph (id: 1) with err 1002")
    1002
    """
    for match in _NUMBER.finditer(text):
        code = int(match[1], 0)
        if code in CODES or code >= 1000:
            return code
    return next((code for code, cause in CODES.items() if f"_{cause.name}" in text), None)


def find_cause(text: str) -> Cause | None:
    """What a message or a log says of why it failed.

    >>> find_cause("Context group 1 does not exist. err 5010").name
    'CONTEXT_GROUP'
    """
    for pattern, cause in PHRASES:
        if re.search(pattern, text, re.IGNORECASE):
            return cause
    code = find_code(text)
    return CODES.get(code) if code is not None else None


def vendor_error(doing: str, text: str) -> BackendError:
    """An error that says what was being done, what the vendor's message means, and what to do."""
    code = find_code(text)
    said = " ".join(text.split())[-300:]
    cause = find_cause(text)
    if cause:
        named = f"Qualcomm's code {code} ({cause.name})" if code else cause.name
        message = f"{doing} failed with {named}: {cause.meaning}"
        return BackendError(message, cause.advice, code)
    if "fallback to CPU EP has been explicitly disabled" in text or "default CPU EP" in text:
        return BackendError(
            f"{doing} failed: the NPU does not take every op of the graph",
            "Report it with the model's name: Satchel should have placed that op on the CPU.",
        )
    known = f"code {code}" if code is not None else "no code"
    return BackendError(f"{doing} failed with {known}: {said}", "", code)
