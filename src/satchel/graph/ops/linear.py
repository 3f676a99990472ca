"""Matrix products: a layer's weight times its activations, and plain matmul."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.packing import quantize_activations
from satchel.graph.ops.activation import activate, check_activation
from satchel.graph.ops.elementwise import broadcast
from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, check_rows, define, require
from satchel.graph.types import DType, TensorType, attr_str

Array = NDArray[Any]

ACTIVATION_BITS = {"f32": 0, "int8": 8, "int16": 16}  # 0: they are not rounded


@define(
    "linear",
    (2, 3),
    "activations",
    "activation",
    traits=[Trait.layer, Trait.integer_layer, Trait.row_wise, Trait.rounds_input],
)
class Linear:
    """x @ weight.T + bias, through the ``activation``.

    ``activations`` "int8" and "int16" round each row of x first.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, weight = types[0], types[1]
        bias = types[2] if len(types) > 2 else None
        assert x and weight
        fits = len(weight.shape) == 2 and weight.dtype == DType.f32
        require(fits, "linear", "the weight must be f32 [out, in]", types)
        require(len(x.shape) >= 1 and x.dtype == DType.f32, "linear", "x must be f32", types)
        require(x.shape[-1] == weight.shape[1], "linear", "the inner sizes differ", types)
        if bias is not None:
            fits = bias == TensorType(weight.shape[:1], DType.f32)
            require(fits, "linear", "the bias does not fit", types)
        activations = attr_str(attrs, "activations", "f32")
        require(activations in ACTIVATION_BITS, "linear", f"no activations {activations!r}")
        check_activation("linear", attrs)
        return [TensorType((*x.shape[:-1], weight.shape[0]), DType.f32)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, weight = arrays[0], arrays[1]
        bits = ACTIVATION_BITS[attr_str(attrs, "activations", "f32")]
        if bits:
            codes, scales = quantize_activations(x.reshape(-1, x.shape[-1]), bits)
            x = (codes.astype(np.float32) * scales[:, None]).reshape(x.shape)
        out = x @ weight.T
        if len(arrays) > 2 and arrays[2] is not None:
            out = out + arrays[2]
        return [activate(out.astype(np.float32), attrs)]


@define("embedding", 2)
class Embedding:
    """Rows of a table, by number."""

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        ids, table = types
        assert ids and table
        require(ids.dtype == DType.i32, "embedding", "the ids must be i32", types)
        fits = len(table.shape) == 2 and table.dtype == DType.f32
        require(fits, "embedding", "the table must be f32 [rows, width]", types)
        return [TensorType((*ids.shape, table.shape[1]), DType.f32)]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        check_rows(arrays[0], len(arrays[1]), "token")
        return [arrays[1][arrays[0]].astype(np.float32)]


@define("matmul", 2)
class MatMul:
    """numpy's matmul for operands of rank 2 or more, with broadcast batch dimensions."""

    @staticmethod
    def types(types: Types, _attrs: Attrs) -> list[TensorType]:
        a, b = types
        assert a and b
        require(len(a.shape) >= 2 and len(b.shape) >= 2, "matmul", "rank 2 or more", types)
        require(a.dtype == b.dtype == DType.f32, "matmul", "both must be f32", types)
        require(a.shape[-1] == b.shape[-2], "matmul", "the inner sizes differ", types)
        batch = broadcast(a.shape[:-2], b.shape[:-2], "matmul")
        return [TensorType((*batch, a.shape[-2], b.shape[-1]), DType.f32)]

    @staticmethod
    def run(arrays: Arrays, _attrs: Attrs) -> list[Array]:
        return [np.matmul(arrays[0], arrays[1])]
