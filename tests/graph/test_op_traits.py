"""What each op says of itself: passes, quantisation and backends go by it."""

from __future__ import annotations

import pytest

from satchel.graph.ops import OPS, Trait, ops_with
from satchel.graph.ops.activation import ACTIVATIONS

ACTIVATION_OPS = "relu hardswish hardsigmoid silu gelu gelu_tanh sigmoid tanh"
MEMBERS = {
    Trait.moves: "reshape reshape_as transpose slice take concat",
    Trait.keeps_codes: "reshape transpose slice take expand pad max_pool2d",
    Trait.row_wise: "linear layer_norm rms_norm",
    Trait.unary: "neg abs exp exp2 expm1 log log1p log2 log10 sqrt rsqrt sin cos tan asin acos "
    "atan sinh cosh asinh acosh atanh erf erfinv floor round trunc clamp affine cast quantize "
    "dequantize lookup " + ACTIVATION_OPS,
    Trait.elementwise: "add sub mul div maximum minimum pow atan2 fmod silu_mul "
    "gelu_tanh_mul compare where qadd qmul",
    Trait.one_axis: "concat slice take softmax",
    Trait.reduction: "reduce_sum reduce_prod reduce_mean reduce_max reduce_min",
    Trait.layer: "conv2d conv_transpose2d linear",
    Trait.integer_layer: "conv2d linear",
    Trait.rounds_input: "linear expert_linear",
    Trait.activation: ACTIVATION_OPS,
    Trait.tabulated: "clamp neg abs affine exp sqrt erf " + ACTIVATION_OPS,
    Trait.integer_pair: "add mul",
}


@pytest.mark.parametrize("trait", Trait)
def test_members(trait: Trait) -> None:
    assert ops_with(trait) == set(MEMBERS[trait].split())


def test_traits_agree_with_the_ops() -> None:
    """What a trait promises of attributes, inputs and other ops is so."""
    assert ops_with(Trait.activation) == set(ACTIVATIONS) - {"none", "relu6"}
    assert all("activation" in OPS[name].attributes for name in ops_with(Trait.layer))
    assert all("activations" in OPS[name].attributes for name in ops_with(Trait.rounds_input))
    assert all("axis" in OPS[name].attributes for name in ops_with(Trait.one_axis))
    assert all("axes" in OPS[name].attributes for name in ops_with(Trait.reduction))
    for trait in (Trait.integer_layer, Trait.integer_pair):
        assert all(f"q{name}" in OPS for name in ops_with(trait))
    assert ops_with(Trait.integer_layer) <= ops_with(Trait.layer)
    assert ops_with(Trait.integer_pair) <= ops_with(Trait.elementwise)
    assert ops_with(Trait.tabulated) <= ops_with(Trait.unary)
