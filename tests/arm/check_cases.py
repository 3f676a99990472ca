"""The cases of ``tests/kernels`` as a file for ``native/tests/kernel_check.cpp``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernels import kernel_cases as cases
from kernels.kernel_cases import Array, Tolerance
from satchel.encodings import packing
from satchel.encodings.encoding import KINDS
from satchel.quantize.cache import dequantize_cache, quantize_cache

ENCODINGS = {"f32": 0, "f16": 1, "q4": 2, "q8": 3, "q4_steps": 9}
Q4_MIN = 5  # to unpack it, its minima are needed too
_TYPES = {"<f4": "f4", "<f8": "f8", "|u1": "u1", "<u2": "u2"}


@dataclass
class CheckCase:
    """One call of a kernel: what it is given, and what each of its outputs should be."""

    op: str
    name: str
    tolerance: Tolerance
    inputs: dict[str, Array]
    expected: dict[str, Array]
    numbers: dict[str, float] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        numbers = {**self.numbers, "rtol": self.tolerance.rtol, "atol": self.tolerance.atol}
        arrays = dict(self.inputs)
        for output, values in self.expected.items():
            arrays[f"expect.{output}"] = np.asarray(values, np.float64)
        parts = [f"case {self.op} {self.name}\n".encode()]
        parts += [f"number {key} {value!r}\n".encode() for key, value in numbers.items()]
        for key, array in arrays.items():
            parts.append(f"array {key} {_TYPES[array.dtype.str]} {array.size}\n".encode())
            parts.append(np.ascontiguousarray(array).tobytes() + b"\n")
        return b"".join([*parts, b"end\n"])


def write_cases(path: Path, checks: list[CheckCase]) -> Path:
    path.write_bytes(b"".join(check.to_bytes() for check in checks))
    return path


def all_cases() -> list[CheckCase]:
    """Every kernel, in sizes that an emulator runs in seconds."""
    rng = np.random.default_rng(7)
    checks = [
        *quantized_linear(rng),
        *linear_from_zero(rng),
        *linear_with_steps(rng),
        *linear_k(rng),
        *float_linear(rng),
        *hard_linear(),
        *quantize_rows(rng),
        *quantize_rows16(rng),
        *cache_rows(rng),
        *unpack_rows(rng),
        *attention(rng),
        *norms(rng),
        *activations(rng),
        *elementwise(rng),
    ]
    assert len({check.name for check in checks}) == len(checks)
    return checks


def linear(
    name: str, encoding: str, x: Array, w: Array, group: int = 0, bias: Array | None = None
) -> CheckCase:
    rows, cols = w.shape
    codes, scales = packing.pack_matrix(encoding, w, group)
    inputs = {"x": x, "codes": codes}
    if group:
        inputs["scales"] = scales
        reference = packing.unpack_codes(encoding, codes, scales, rows, cols, group)
        expected = cases.expected_quantized(x, *reference, bias)
    else:
        stored = packing.unpack_matrix(encoding, codes, scales, rows, cols)
        expected = x.astype(float) @ stored.astype(float).T + (0 if bias is None else bias)
    if bias is not None:
        inputs["bias"] = bias
    numbers = {"encoding": ENCODINGS[encoding], "rows": rows, "cols": cols, "group": group}
    tolerance = cases.linear_tolerance(expected)
    return CheckCase("linear", name, tolerance, inputs, {"y": expected}, numbers)


def quantized_linear(rng: np.random.Generator) -> Iterator[CheckCase]:
    # Besides the usual ones: a group of 20 is not a whole number of steps of eight columns, 67 rows
    # are more than pass over an unpacked tile together, and groups of 600 do not fit in it whole.
    shapes = [(shape, m) for shape in cases.SHAPES for m in cases.ROW_COUNTS]
    shapes += [((40, 100, 20), m) for m in (1, 13)] + [((19, 64, 32), m) for m in (12, 67)]
    shapes += [((18, 1200, 600), m) for m in (1, 15)]
    for encoding in ("q4", "q8"):
        for (rows, cols, group), m in shapes:
            if encoding == "q4" and group % 8:
                continue
            w = rng.standard_normal((rows, cols), dtype=np.float32)
            bias = rng.standard_normal(rows, dtype=np.float32) if m != 2 else None
            x = rng.standard_normal((m, cols), dtype=np.float32)
            name = f"linear-{encoding}-{rows}x{cols}-group{group}-tokens{m}"
            yield linear(name, encoding, x, w, group, bias)


def linear_from_zero(rng: np.random.Generator) -> Iterator[CheckCase]:
    """q4_min: the bytes of a q4 whose codes count from 0."""
    for rows, cols, group in ((40, 64, 32), (33, 320, 64), (31, 1096, 1096)):
        for m in (1, 3, 17):
            w = rng.standard_normal((rows, cols), dtype=np.float32)
            x = rng.standard_normal((m, cols), dtype=np.float32)
            check = linear(f"linear-q4_min-{rows}x{cols}-tokens{m}", "q4", x, w, group)
            codes, scales = packing.quantize_groups(w, 4, group)
            expected = cases.expected_quantized(x, cases.codes_from_zero(codes), scales, None)
            check.numbers["encoding"] = Q4_MIN
            check.expected, check.tolerance = {"y": expected}, cases.linear_tolerance(expected)
            yield check


def linear_with_steps(rng: np.random.Generator) -> Iterator[CheckCase]:
    """q4_steps, with a last run that is shorter, and rows whose steps are fine."""
    for rows, cols, group in ((40, 64, 32), (33, 1088, 64), (18, 2080, 8), (31, 1024, 1024)):
        for m in (1, 3, 17):
            w = rng.standard_normal((rows, cols), dtype=np.float32)
            w[3::7, : group // 2] *= 100
            x = rng.standard_normal((m, cols), dtype=np.float32)
            yield linear(f"linear-q4_steps-{rows}x{cols}-tokens{m}", "q4_steps", x, w, group)


def linear_k(rng: np.random.Generator) -> Iterator[CheckCase]:
    """Weights of 5 and 6 bits, and K-quants."""
    for encoding, group in cases.K_ENCODINGS.items():
        for (rows, cols), m in itertools.product(cases.K_SHAPES, (1, 3, 12, 17)):
            (codes, scales), weights = cases.kept_weight(rng, encoding, rows, cols)
            bias = rng.standard_normal(rows, dtype=np.float32)
            x = rng.standard_normal((m, cols), dtype=np.float32)
            expected = cases.rounded_rows(x, 8) @ weights.T + bias
            numbers = {"encoding": KINDS[f"matrix_{encoding}"] - 16, "rows": rows, "cols": cols}
            inputs = {"x": x, "codes": codes, "scales": scales, "bias": bias}
            name = f"linear-{encoding}-{rows}x{cols}-tokens{m}"
            tolerance = cases.linear_tolerance(expected)
            yield CheckCase(
                "linear", name, tolerance, inputs, {"y": expected}, {**numbers, "group": group}
            )


def float_linear(rng: np.random.Generator) -> Iterator[CheckCase]:
    for encoding in ("f32", "f16"):
        for rows, cols in cases.FLOAT_SHAPES:
            for m in (1, 2, 3, 5, 8):
                w = rng.standard_normal((rows, cols), dtype=np.float32)
                bias = rng.standard_normal(rows, dtype=np.float32) if m != 2 else None
                x = rng.standard_normal((m, cols), dtype=np.float32)
                name = f"linear-{encoding}-{rows}x{cols}-tokens{m}"
                yield linear(name, encoding, x, w, bias=bias)


def hard_linear() -> Iterator[CheckCase]:
    for encoding in ("q4", "q8"):
        for group in (32, 512):
            x, w = cases.largest_products(encoding, group)
            check = linear(f"linear-{encoding}-largest-group{group}", encoding, x, w, group)
            check.tolerance = cases.EXACT
            check.expected = {"y": x @ w.T}
            yield check
        for bad in (np.nan, np.inf, -np.inf):
            x = np.ones((13, 64), np.float32)
            x[1, 37] = bad
            y = np.full((13, 16), 64.0)
            y[1] = np.nan
            w = np.ones((16, 64), np.float32)
            codes, scales = packing.pack_matrix(encoding, w, 32)
            inputs = {"x": x, "codes": codes, "scales": scales}
            numbers = {"encoding": ENCODINGS[encoding], "rows": 16, "cols": 64, "group": 32}
            tolerance = Tolerance(1e-3, 0)  # 1 is not a whole number of 127ths in fp16
            name = f"linear-{encoding}-with-{bad}"
            yield CheckCase("linear", name, tolerance, inputs, {"y": y}, numbers)


def quantize_rows(rng: np.random.Generator) -> Iterator[CheckCase]:
    for cols, group in cases.QUANTIZE_SHAPES:
        x = cases.rows_to_quantize(rng, cols)
        codes, scales = packing.quantize_activations(x)
        padded = np.pad(codes, ((0, 0), (0, -cols % 64)))
        sums = codes.reshape(6, cols // group, group).sum(axis=2, dtype=np.int32)
        expected = {"codes": padded, "scales": scales, "sums": sums}
        name, numbers = f"quantize-{cols}-group{group}", {"cols": cols, "group": group}
        yield CheckCase("quantize_rows", name, cases.EXACT, {"x": x}, expected, numbers)


def quantize_rows16(rng: np.random.Generator) -> Iterator[CheckCase]:
    """Two rows of digits to the base 255 for each row of x."""
    for cols, group in cases.QUANTIZE_SHAPES:
        x = cases.rows_to_quantize(rng, cols)
        codes, scales = packing.quantize_activations(x, 16)
        high = np.rint(codes / 255)
        digits = np.stack([high, codes - 255 * high], axis=1).reshape(12, cols)
        expected = {
            "codes": np.pad(digits, ((0, 0), (0, -cols % 64))),
            "scales": np.stack([scales * np.float32(255), scales], axis=1),
            "sums": digits.reshape(12, cols // group, group).sum(axis=2),
        }
        name, numbers = f"quantize16-{cols}-group{group}", {"cols": cols, "group": group}
        yield CheckCase("quantize_rows16", name, cases.EXACT, {"x": x}, expected, numbers)


def cache_rows(rng: np.random.Generator) -> Iterator[CheckCase]:
    for dim in (1, 3, *cases.HEAD_SIZES):
        x = cases.rows_to_quantize(rng, dim)
        x[4] = 3
        x[5, -1] = np.inf
        expected, numbers = {"rows": quantize_cache(x)}, {"dim": dim}
        name = f"cache-row-{dim}"
        yield CheckCase("quantize_cache", name, cases.EXACT, {"x": x}, expected, numbers)


def unpack_rows(rng: np.random.Generator) -> Iterator[CheckCase]:
    rows, cols, group = 37, 96, 32
    for encoding, code in ENCODINGS.items():
        w = rng.standard_normal((rows, cols), dtype=np.float32)
        codes, scales = packing.pack_matrix(encoding, w, group)
        expected = {"y": packing.unpack_matrix(encoding, codes, scales, rows, cols, group)}
        inputs = {"codes": codes, "scales": scales}
        numbers = {"encoding": code, "rows": rows, "cols": cols, "group": group}
        yield CheckCase("unpack_row", f"unpack-{encoding}", cases.EXACT, inputs, expected, numbers)


def attention(rng: np.random.Generator) -> Iterator[CheckCase]:
    for i, dim in enumerate(cases.HEAD_SIZES):
        group = cases.HEAD_GROUPS[i % len(cases.HEAD_GROUPS)]
        for queries, position in cases.PLACES:
            yield from attend(rng, (queries, position), (2 if queries < 9 else 1, group), dim)
    for i, window in enumerate(cases.WINDOWS):
        place = cases.WINDOW_PLACES[-1 if window == 64 else i % len(cases.WINDOW_PLACES)]
        yield from attend(rng, place, (1, 3), 32, window=window)
    for softcap in cases.SOFTCAPS:
        yield from attend(rng, (9, 130), (1, 4), 64, softcap=softcap, window=50)


def attend(
    rng: np.random.Generator,
    place: tuple[int, int],
    heads: tuple[int, int],
    dim: int,
    *,
    window: int = 0,
    softcap: float = 0.0,
) -> Iterator[CheckCase]:
    """The same with a cache of f32, of f16 and of 8 bits."""
    queries, position = place
    q, k, v = cases.make_attention(rng, queries, heads, dim, position)
    options = {"window": window, "softcap": softcap, "scale": dim**-0.5}
    shape = {"heads": q.shape[1], "kv_heads": heads[0], "dim": dim, "capacity": k.shape[1]}
    numbers = {**shape, **options, "position": position}
    size = f"{queries}x{q.shape[1]}x{dim}-at{position}-window{window}-softcap{softcap}"
    k16, v16 = k.astype(np.float16), v.astype(np.float16)
    k8, v8 = quantize_cache(k), quantize_cache(v)
    caches = {
        "f32": (k, v, k, v),
        "f16": (k16.view(np.uint16), v16.view(np.uint16), k16, v16),
        "u8": (k8, v8, dequantize_cache(k8), dequantize_cache(v8)),
    }
    for kind, (stored_k, stored_v, meant_k, meant_v) in caches.items():
        expected = cases.expected_attention(q, meant_k, meant_v, position, **options)
        inputs = {"q": q, "k": stored_k, "v": stored_v}
        name = f"attention-{kind}-{size}"
        yield CheckCase("attention", name, cases.ATTENTION, inputs, {"y": expected}, numbers)


def norms(rng: np.random.Generator) -> Iterator[CheckCase]:
    eps = {"eps": 1e-5}
    for cols in cases.SIZES:
        x = rng.standard_normal((5, cols), dtype=np.float32) * 3
        w, b = rng.standard_normal((2, cols), dtype=np.float32)
        expected = {"y": cases.expected_rms_norm(x, w, 1e-5)}
        inputs = {"x": x, "weight": w}
        yield CheckCase("rms_norm", f"rms-norm-{cols}", cases.RMS_NORM, inputs, expected, eps)
        inputs = {"x": x + 5, "weight": w}
        for bias in (None, b):
            expected = {"y": cases.expected_layer_norm(x + 5, w, bias, 1e-5)}
            with_bias = inputs if bias is None else {**inputs, "bias": bias}
            name = f"layer-norm-{cols}-{'plain' if bias is None else 'bias'}"
            yield CheckCase("layer_norm", name, cases.LAYER_NORM, with_bias, expected, eps)


def activations(rng: np.random.Generator) -> Iterator[CheckCase]:
    for n in cases.SIZES:
        gate = rng.standard_normal(n, dtype=np.float32) * 10
        up = rng.standard_normal(n, dtype=np.float32)
        inputs = {"a": gate, "b": up}
        expected = {"y": cases.expected_silu_mul(gate, up)}
        yield CheckCase("silu_mul", f"silu-{n}", cases.SILU, inputs, expected)
        expected = {"y": cases.expected_gelu_mul(gate, up)}
        yield CheckCase("gelu_tanh_mul", f"gelu-{n}", cases.GELU, inputs, expected)
    x, silu = cases.exponential_inputs(20_001)
    inputs, expected = {"a": x, "b": np.ones_like(x)}, {"y": silu}
    yield CheckCase("silu_mul", "exponential", cases.EXPONENTIAL, inputs, expected)
    gate = cases.ACTIVATION_EXTREMES
    inputs, expected = {"a": gate, "b": np.ones_like(gate)}, {"y": cases.EXPECTED_EXTREMES}
    for op in ("silu_mul", "gelu_tanh_mul"):
        yield CheckCase(op, f"{op}-extremes", cases.EXTREMES, inputs, expected)


def elementwise(rng: np.random.Generator) -> Iterator[CheckCase]:
    for n in cases.SIZES:
        a, b = rng.standard_normal((2, n), dtype=np.float32)
        yield CheckCase("add", f"add-{n}", cases.EXACT, {"a": a, "b": b}, {"y": a + b})
        yield CheckCase("mul", f"mul-{n}", cases.EXACT, {"a": a, "b": b}, {"y": a * b})
    for dim, rotary in cases.ROPE_SHAPES:
        x, cos_sin, expected = cases.make_rope(rng, dim, rotary)
        inputs = {"x": x, "cos_sin": cos_sin}
        numbers = {"heads": 3, "dim": dim, "rotary": rotary}
        name = f"rope-{dim}-{rotary}"
        yield CheckCase("rope", name, cases.ROPE, inputs, {"y": expected}, numbers)
    halves = np.arange(65536, dtype=np.uint16)
    expected = {"y": halves.view(np.float16)}
    yield CheckCase("half_to_float", "every-half", cases.EXACT, {"x": halves}, expected)
    x, rounded = cases.floats_to_round(rng, 20_000)
    yield CheckCase("float_to_half", "round", cases.EXACT, {"x": x}, {"y": rounded})
