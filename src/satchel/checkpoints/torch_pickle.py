"""A reader of the pickles that torch.save writes, which never runs any of them.

A pickle is a program that can call anything. This one interprets only what plain containers and
torch's tensors need, and knows tensors as descriptions; any other name in it is refused.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.errors import CheckpointError

STORAGE_DTYPES = {
    "DoubleStorage": ("f64", 8),
    "FloatStorage": ("f32", 4),
    "HalfStorage": ("f16", 2),
    "BFloat16Storage": ("bf16", 2),
    "LongStorage": ("i64", 8),
    "IntStorage": ("i32", 4),
    "ShortStorage": ("i16", 2),
    "CharStorage": ("i8", 1),
    "ByteStorage": ("u8", 1),
    "BoolStorage": ("bool", 1),
}


@dataclass(frozen=True)
class Storage:
    """A run of numbers in a member ``data/KEY`` of the archive."""

    key: str
    dtype: str
    item_size: int
    count: int


@dataclass(frozen=True)
class TorchTensor:
    """A view of a storage, as torch describes it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Name:
    """A global that the pickle names; it is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_ORDERED_DICT = _Name("collections", "OrderedDict")
_TENSOR = _Name("torch._utils", "_rebuild_tensor_v2")
_PARAMETER = _Name("torch._utils", "_rebuild_parameter")
_ALLOWED = {_ORDERED_DICT, _TENSOR, _PARAMETER} | {
    _Name("torch", storage) for storage in STORAGE_DTYPES
}

_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"}


def read_torch_pickle(data: bytes, where: Path) -> Any:
    """The value of a torch pickle, with TorchTensor in place of tensors."""
    try:
        return _interpret(data, where)
    except CheckpointError:
        raise
    except Exception as error:
        # Whatever hostile bytes do to the stack ends here; nothing was called.
        raise CheckpointError(
            f"{where} has a pickle that cannot be read ({type(error).__name__})",
            "The file is damaged: fetch it again",
        ) from error


def _interpret(data: bytes, where: Path) -> Any:
    stack: list[Any] = []
    memo: dict[Any, Any] = {}

    def pop_to_mark() -> list[Any]:
        items: list[Any] = []
        while (item := stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    for opcode, argument, _ in pickletools.genops(data):
        op = opcode.name
        if op in _LITERALS:
            stack.append(argument)
        elif op in _CONSTANTS:
            stack.append(_CONSTANTS[op])
        elif op in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif op == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif op in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif op == "MARK":
            stack.append(_MARK)
        elif op == "EMPTY_DICT":
            stack.append({})
        elif op == "EMPTY_LIST":
            stack.append([])
        elif op == "EMPTY_TUPLE":
            stack.append(())
        elif op in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(op[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif op == "TUPLE":
            stack.append(tuple(pop_to_mark()))
        elif op == "APPEND":
            item = stack.pop()
            _expect(stack[-1], list).append(item)
        elif op == "APPENDS":
            items = pop_to_mark()
            _expect(stack[-1], list).extend(items)
        elif op == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _set_items(stack[-1], [key, value])
        elif op == "SETITEMS":
            items = pop_to_mark()
            _set_items(stack[-1], items)
        elif op == "GLOBAL":
            module, name = str(argument).split(" ", 1)
            stack.append(_name(module, name, where))
        elif op == "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            stack.append(_name(module, name, where))
        elif op == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif op == "REDUCE":
            arguments, callee = stack.pop(), stack.pop()
            stack.append(_reduce(callee, _expect(arguments, tuple)))
        elif op == "BUILD":
            stack.pop()  # attributes of an ordered dict (torch's _metadata): not needed
            _expect(stack[-1], dict)
        elif op == "STOP":
            return stack.pop()
        elif op not in ("PROTO", "FRAME"):
            raise CheckpointError(
                f"{where} has a pickle with the operation {op}, which weights do not need",
                "Do not load this file with other tools; use a safetensors checkpoint",
            )
    raise ValueError("no end")


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}")
    return value


def _set_items(target: Any, items: list[Any]) -> None:
    target = _expect(target, dict)
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Keys of other kinds may take forever to hash (nested tuples).
        if not isinstance(key, str | int):
            raise TypeError("key")
        target[key] = value


def _name(module: str, name: str, where: Path) -> _Name:
    found = _Name(_expect(module, str), _expect(name, str))
    if found not in _ALLOWED:
        raise CheckpointError(
            f"{where} has a pickle that names {found}, which weights do not need",
            "It was not run. Do not load this file with other tools; use a safetensors checkpoint",
        )
    return found


def _storage(persistent_id: Any) -> Storage:
    kind, storage, key, _location, count = _expect(persistent_id, tuple)
    if kind != "storage" or storage.name not in STORAGE_DTYPES:
        raise ValueError("persistent id")
    dtype, item_size = STORAGE_DTYPES[storage.name]
    return Storage(_expect(key, str), dtype, item_size, _expect(count, int))


def _reduce(callee: Any, arguments: tuple[Any, ...]) -> Any:
    if callee == _ORDERED_DICT and not arguments:
        return {}
    if callee == _PARAMETER:
        return _expect(arguments[0], TorchTensor)
    if callee == _TENSOR:
        storage, offset, shape, stride = arguments[:4]
        return TorchTensor(
            _expect(storage, Storage), _expect(offset, int), _sizes(shape), _sizes(stride)
        )
    raise ValueError("call")


def _sizes(values: Any) -> tuple[int, ...]:
    if any(_expect(value, int) < 0 for value in _expect(values, tuple)):
        raise ValueError("negative size")
    return tuple(values)
