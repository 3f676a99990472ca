"""Runs a package's ML program in numpy: what it means, as far as that is known without a Mac.

Weights are read back from the package's file and decompressed by the format's rules. Numbers
between ops are 32-bit floats here and 16-bit ones on a device, where Apple's compiler also decides
what runs where: neither is shown by this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
from coremltools.converters.mil.frontend.milproto.load import load as load_program
from numpy.typing import NDArray

from satchel.graph.ops.elementwise import erf

Array = NDArray[Any]
_KEPT = 2 << 30  # bytes of weights that are unpacked once and not at every call


class PackageInterpreter:
    """The functions of a package. States stay from call to call.

    >>> PackageInterpreter("model.mlpackage").run("kv", tokens=…)  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        spec = ct.models.utils.load_spec(str(path))
        weights = path / "Data" / "com.apple.CoreML" / "weights"
        self.spec = spec
        self.program = load_program(
            spec,
            specification_version=spec.specificationVersion,
            file_weights_dir=str(weights),
        )
        self.states: dict[str, Array] = {}
        self._unpacked: dict[int, Array] = {}  # weights as floats, by the op that makes them
        self._room = _KEPT

    @property
    def functions(self) -> list[str]:
        return list(self.program.functions)

    def run(self, function: str | None = None, /, **inputs: Array) -> dict[str, Array]:
        """All outputs by name."""
        name = function or self.program.default_function_name
        block = self.program.functions[name]
        known: dict[Any, Any] = {}
        for given, var in block.inputs.items():
            if given in inputs:
                known[var] = _floats(inputs[given])
            else:  # a state
                self.states.setdefault(given, np.zeros(var.shape, np.float32))
                known[var] = given
        for op in block.operations:
            arguments = {
                key: _found(value, known) for key, value in op.inputs.items() if value is not None
            }
            if op.op_type == "classify":
                label, likely = op.outputs
                known[label], known[likely] = _classify(arguments)
            else:
                known[op.outputs[0]] = self._run(op, arguments)
        return {var.name: known[var] for var in block.outputs if var in known}

    def _run(self, op: Any, a: Mapping[str, Any]) -> Any:
        if op.op_type == "read_state":
            return self.states[a["input"]]
        if op.op_type in ("coreml_update_state", "write_state"):
            state = a.get("state", a.get("input"))
            value = a["value"] if "value" in a else a["data"]
            self.states[state] = value.astype(np.float16).astype(np.float32)
            return self.states[state]
        if id(op) in self._unpacked:
            return self._unpacked[id(op)]
        stored = op.op_type == "const"
        made = _constant(op.outputs[0]) if stored else _OPS[op.op_type](a)
        # Whatever became floats: what is stored as another kind of number is given as it is.
        unpacked = isinstance(made, np.ndarray) and made.dtype == np.float32
        if op.op_type.startswith("const") and unpacked and made.nbytes <= self._room:
            self._room -= made.nbytes
            self._unpacked[id(op)] = made
        return made


def _classify(a: Mapping[str, Any]) -> tuple[str, dict[str, float]]:
    """The likeliest class, and how likely each is."""
    classes = [str(name) for name in a["classes"]]
    numbers = np.asarray(a["probabilities"]).reshape(-1)
    likely = dict(zip(classes, map(float, numbers), strict=True))
    return classes[int(np.argmax(numbers))], likely


def _found(var: Any, known: Mapping[Any, Any]) -> Any:
    """What has been computed, or a constant; of several, each."""
    if isinstance(var, (list, tuple)):
        return [_found(each, known) for each in var]
    return known[var] if var in known else _constant(var)


def _floats(array: Any) -> Array:
    found = np.asarray(array)
    return found.astype(np.float32) if found.dtype.kind == "f" else found


def _constant(var: Any) -> Any:
    value = var.val
    if isinstance(value, (np.ndarray, np.generic)) and np.asarray(value).dtype.kind == "f":
        return _floats(value)
    return value


def _blocks(a: Mapping[str, Any]) -> Array:
    """data times the scale of its block, less an offset."""
    data = np.asarray(a["data"]).astype(np.float32)
    scale = np.asarray(a["scale"]).astype(np.float32)
    if a.get("offset") is not None:
        data = data - _spread(np.asarray(a["offset"]).astype(np.float32), data.shape)
    return data * _spread(scale, data.shape)


def _spread(small: Array, shape: tuple[int, ...]) -> Array:
    for axis, size in enumerate(shape):
        small = np.repeat(small, size // small.shape[axis], axis=axis)
    return small


def _affine(a: Mapping[str, Any]) -> Array:
    data = np.asarray(a["quantized_data"]).astype(np.float32)
    shape = [1] * data.ndim
    shape[int(a["axis"])] = -1

    def along(value: Any) -> Array:
        array = np.asarray(value).astype(np.float32)
        return array.reshape(shape) if array.ndim else array

    result: Array = (data - along(a["zero_point"])) * along(a["scale"])
    return result


def _lut(a: Mapping[str, Any]) -> Array:
    """Every index looked up in the table of its block."""
    indices = np.asarray(a["indices"]).astype(np.int64)
    tables = np.asarray(a["lut"]).astype(np.float32)  # [blocks of each axis…, entries, 1]
    where = np.arange(int(np.prod(tables.shape[:-2]))).reshape(tables.shape[:-2])
    of = _spread(where, indices.shape)
    result: Array = tables.reshape(-1, tables.shape[-2])[of, indices]
    return result


def _conv(a: Mapping[str, Any]) -> Array:
    x, weight = a["x"], np.asarray(a["weight"]).astype(np.float32, copy=False)
    groups = int(a.get("groups", 1))
    strides, dilations = (
        [1, 1] if a.get(name) is None else [int(step) for step in a[name]]
        for name in ("strides", "dilations")
    )
    pad = list(a["pad"]) if str(a.get("pad_type")) == "custom" else [0, 0, 0, 0]
    assert str(a.get("pad_type", "valid")) in ("valid", "custom")
    x = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[1]), (pad[2], pad[3])))
    out_c, _, kh, kw = weight.shape
    rows = (x.shape[2] - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    cols = (x.shape[3] - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    split = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    taps = weight.reshape(groups, out_c // groups, -1, kh, kw)
    total = np.zeros((x.shape[0], groups, out_c // groups, rows, cols), np.float32)
    for y in range(kh):
        for z in range(kw):
            top, left = y * dilations[0], z * dilations[1]
            seen = split[
                ...,
                top : top + (rows - 1) * strides[0] + 1 : strides[0],
                left : left + (cols - 1) * strides[1] + 1 : strides[1],
            ]
            made = taps[..., y, z] @ seen.reshape(*seen.shape[:3], -1)
            total += made.reshape(total.shape)
    out: Array = total.reshape(x.shape[0], out_c, rows, cols)
    bias = a.get("bias")
    return out if bias is None else out + np.asarray(bias).reshape(1, -1, 1, 1)


def _linear(a: Mapping[str, Any]) -> Array:
    out: Array = a["x"] @ np.asarray(a["weight"]).T
    return out if a.get("bias") is None else out + a["bias"]


def _matmul(a: Mapping[str, Any]) -> Array:
    x, y = a["x"], a["y"]
    x = np.swapaxes(x, -1, -2) if a.get("transpose_x") else x
    y = np.swapaxes(y, -1, -2) if a.get("transpose_y") else y
    result: Array = x @ y
    return result


def _softmax(a: Mapping[str, Any]) -> Array:
    axis = int(a["axis"])
    power = np.exp(a["x"] - a["x"].max(axis=axis, keepdims=True))
    result: Array = power / power.sum(axis=axis, keepdims=True)
    return result


def _layer_norm(a: Mapping[str, Any]) -> Array:
    axes = tuple(int(axis) for axis in a["axes"])
    centred = a["x"] - a["x"].mean(axis=axes, keepdims=True)
    mean = (centred**2).mean(axis=axes, keepdims=True)
    result: Array = centred / np.sqrt(mean + a["epsilon"])
    result = result if a.get("gamma") is None else result * a["gamma"]
    return result if a.get("beta") is None else result + a["beta"]


def _gelu(a: Mapping[str, Any]) -> Array:
    x = a["x"].astype(np.float64)
    if str(a.get("mode", "EXACT")) == "EXACT":
        shape = erf(x / math.sqrt(2))
    else:
        shape = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    result: Array = (0.5 * x * (1 + shape)).astype(np.float32)
    return result


def _slice(a: Mapping[str, Any]) -> Array:
    begin, end = list(a["begin"]), list(a["end"])
    index = tuple(slice(int(b), int(e)) for b, e in zip(begin, end, strict=True))
    result: Array = a["x"][index]
    return result


def _slice_update(a: Mapping[str, Any]) -> Array:
    out: Array = np.array(a["x"])
    index = []
    for axis, size in enumerate(out.shape):
        first = 0 if a["begin_mask"][axis] else int(a["begin"][axis])
        last = size if a["end_mask"][axis] else int(a["end"][axis])
        index.append(slice(first, last))
    out[tuple(index)] = a["update"]
    return out


def _reduced(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Array]:
    def run(a: Mapping[str, Any]) -> Array:
        axes = tuple(int(axis) for axis in a["axes"])
        result: Array = function(a["x"], axis=axes, keepdims=bool(a["keep_dims"]))
        return result

    return run


def _pool(a: Mapping[str, Any], function: Callable[..., Any], fill: float) -> Array:
    kernel, strides = [int(n) for n in a["kernel_sizes"]], [int(n) for n in a["strides"]]
    pad = [int(n) for n in a["pad"]] if str(a["pad_type"]) == "custom" else [0, 0, 0, 0]
    over = [0, 0]
    if a.get("ceil_mode"):  # a last window that begins inside, as PyTorch has it
        for axis in range(2):
            size, (before, after) = a["x"].shape[2 + axis], pad[2 * axis : 2 * axis + 2]
            steps = -(-(size + before + after - kernel[axis]) // strides[axis])
            steps -= steps * strides[axis] >= size + before
            over[axis] = max(0, steps * strides[axis] + kernel[axis] - size - before - after)
    around = (pad[0], pad[1] + over[0]), (pad[2], pad[3] + over[1])
    x = np.pad(a["x"], ((0, 0), (0, 0), *around), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    result: Array = function(seen[:, :, :: strides[0], :: strides[1]], axis=(-1, -2))
    if a.get("exclude_padding_from_average"):
        inside = _pool(
            {**a, "x": np.ones_like(a["x"]), "exclude_padding_from_average": 0}, function, 0
        )
        result = result / inside
    return result


def _reshape(a: Mapping[str, Any]) -> Array:
    shape = [a["x"].shape[i] if d == 0 else int(d) for i, d in enumerate(a["shape"])]
    result: Array = np.reshape(a["x"], shape)
    return result


def _cast(x: Any, kind: str) -> Array:
    result: Array = np.asarray(x).astype(np.float32 if kind.startswith("fp") else kind)
    return result


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


_OPS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "constexpr_blockwise_shift_scale": _blocks,
    "constexpr_affine_dequantize": _affine,
    "constexpr_lut_to_dense": _lut,
    "conv": _conv,
    "linear": _linear,
    "matmul": _matmul,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "gelu": _gelu,
    "slice_by_index": _slice,
    "slice_update": _slice_update,
    "reshape": _reshape,
    "identity": lambda a: a["x"],
    "transpose": lambda a: np.transpose(a["x"], [int(p) for p in a["perm"]]),
    "expand_dims": lambda a: np.expand_dims(a["x"], tuple(int(i) for i in a["axes"])),
    "squeeze": lambda a: np.squeeze(a["x"], tuple(int(i) for i in a["axes"])),
    "tile": lambda a: np.tile(a["x"], [int(n) for n in a["reps"]]),
    "concat": lambda a: np.concatenate([np.asarray(v) for v in a["values"]], int(a["axis"])),
    "gather": lambda a: np.take(a["x"], np.asarray(a["indices"]), axis=int(a["axis"])),
    "select": lambda a: np.where(a["cond"], a["a"], a["b"]),
    "add": lambda a: a["x"] + a["y"],
    "sub": lambda a: a["x"] - a["y"],
    "mul": lambda a: a["x"] * a["y"],
    "real_div": lambda a: a["x"] / a["y"],
    "maximum": lambda a: np.maximum(a["x"], a["y"]),
    "minimum": lambda a: np.minimum(a["x"], a["y"]),
    "abs": lambda a: np.abs(a["x"]),
    "exp": lambda a: np.exp(a["x"]),
    "sqrt": lambda a: np.sqrt(a["x"]),
    "rsqrt": lambda a: 1 / np.sqrt(a["x"] + a["epsilon"]),
    "tanh": lambda a: np.tanh(a["x"]),
    "sigmoid": lambda a: _sigmoid(a["x"]),
    "silu": lambda a: a["x"] * _sigmoid(a["x"]),
    "relu": lambda a: np.maximum(a["x"], 0),
    "relu6": lambda a: np.clip(a["x"], 0, 6),
    "clip": lambda a: np.clip(a["x"], a["alpha"], a["beta"]),
    "sigmoid_hard": lambda a: np.clip(a["alpha"] * a["x"] + a["beta"], 0, 1),
    "less": lambda a: a["x"] < a["y"],
    "less_equal": lambda a: a["x"] <= a["y"],
    "greater_equal": lambda a: a["x"] >= a["y"],
    "logical_and": lambda a: np.logical_and(a["x"], a["y"]),
    "reduce_mean": _reduced(np.mean),
    "reduce_max": _reduced(np.max),
    "reduce_sum": _reduced(np.sum),
    "max_pool": lambda a: _pool(a, np.max, -np.inf),
    "avg_pool": lambda a: _pool(a, np.mean, 0.0),
    "cast": lambda a: _cast(a["x"], str(a["dtype"])),
}
