"""Layers of many experts, of which every token chooses some."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.encodings.packing import quantize_activations
from satchel.graph.ops.linear import ACTIVATION_BITS
from satchel.graph.ops.registry import Arrays, Attrs, Trait, Types, check_rows, define, require
from satchel.graph.types import DType, TensorType, attr_int, attr_str

Array = NDArray[Any]

EXPERT_ROWS = 16  # an expert's rows are whole tiles of these


@define("expert_linear", 3, "experts", "activations", traits=[Trait.rounds_input])
class ExpertLinear:
    """out[s][c] = weight[chosen[s][c]] @ x[s], or @ x[s][c] where each choice has its own input.

    The rows of all ``experts`` lie one behind the other in the weight, [experts * out, in].
    ``activations`` "int8" and "int16" round each row of x first.
    """

    @staticmethod
    def types(types: Types, attrs: Attrs) -> list[TensorType]:
        x, weight, chosen = types
        assert x and weight and chosen
        op, experts = "expert_linear", attr_int(attrs, "experts")
        fits = len(weight.shape) == 2 and weight.dtype == DType.f32
        require(fits, op, "the weight must be f32 [experts * out, in]", types)
        rows = weight.shape[0]
        assert isinstance(rows, int)
        whole = experts >= 1 and rows % experts == 0 and rows // experts % EXPERT_ROWS == 0
        require(whole, op, f"{rows} rows are not {experts} experts of a multiple of 16", types)
        fits = len(chosen.shape) == 2 and chosen.dtype == DType.i32
        require(fits, op, "the choices must be i32 [tokens, choices]", types)
        fits = x.dtype == DType.f32 and len(x.shape) in (2, 3)
        fits = fits and x.shape[:-1] == chosen.shape[: len(x.shape) - 1]
        require(fits, op, "x must be f32, a row for each token or for each choice", types)
        require(x.shape[-1] == weight.shape[1], op, "the inner sizes differ", types)
        activations = attr_str(attrs, "activations", "f32")
        require(activations in ACTIVATION_BITS, op, f"no activations {activations!r}")
        return [TensorType((*chosen.shape, rows // experts), DType.f32)]

    @staticmethod
    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x, weight, chosen = arrays
        experts = attr_int(attrs, "experts")
        check_rows(chosen, experts, "expert")
        bits = ACTIVATION_BITS[attr_str(attrs, "activations", "f32")]
        if bits:
            codes, scales = quantize_activations(x.reshape(-1, x.shape[-1]), bits)
            x = (codes.astype(np.float32) * scales[:, None]).reshape(x.shape)
        matrices = weight.reshape(experts, -1, weight.shape[1])
        out = np.empty((*chosen.shape, matrices.shape[1]), np.float32)
        for expert in np.unique(chosen):
            token, choice = np.nonzero(chosen == expert)
            rows = x[token] if x.ndim == 2 else x[token, choice]
            out[token, choice] = rows @ matrices[expert].T
        return [out]
