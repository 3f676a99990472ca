"""The recipe int8 for modules: calibrate, plan, lower, and measure each layer's noise."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.errors import RecipeError
from satchel.graph.ir import Graph, Value
from satchel.graph.reference import WeightReader, check_shape
from satchel.quantize.static import (
    HeadSteps,
    IntegerPlan,
    LayerNoise,
    attention_name,
    calibrate,
    choose_layers,
    lower_integers,
    measure_noise,
    own_noise,
    plan_integers,
)
from satchel.quantize.static.plan import LAYERS

Array = NDArray[Any]
Example = Mapping[str, Array]

NOISE_EXAMPLES = 1  # it takes two runs of the reference, which is slow


@dataclass(frozen=True)
class StaticResult:
    graph: Graph
    codes: dict[str, Array]  # weights in whole numbers, by name
    noise: dict[str, float]  # dB by weight, the noisiest layer first
    kept_in_float: list[str]  # layers that 8 bits would have hurt too much
    output_snr: float  # dB of all outputs together


def quantize_static(
    graph: Graph,
    read_weight: WeightReader,
    examples: Sequence[Example],
    observer: str,
    float_layers: Collection[str],
    least_snr: float,
    plain: bool = False,
) -> StaticResult:
    """``float_layers`` stay in floats, and so do those whose own noise leaves less than
    ``least_snr`` dB of the signal, and attention alike; and more, if it is the outputs that have
    less. ``plain`` uses no more integer forms than any library has.
    """
    heads: dict[str, HeadSteps] = {}
    encodings = calibrate(graph, read_weight, examples, observer, native=True, heads=heads)
    alone = own_noise(graph, read_weight, encodings, examples[0], heads)
    alone = {name: snr for name, snr in alone.items() if name not in float_layers}
    plan, noise = IntegerPlan(), LayerNoise()

    def output_snr(floats: Sequence[str]) -> float:
        nonlocal plan, noise
        steps = {name: one for name, one in heads.items() if name not in floats}
        plan = plan_integers(graph, encodings, {*float_layers, *floats}, steps, plain)
        noise = measure_noise(graph, read_weight, plan, examples[:NOISE_EXAMPLES])
        return noise.outputs

    noisy, snr = choose_layers(alone, least_snr, output_snr)
    if noise.outputs != snr:  # the best was not the last
        output_snr(noisy)
    kept = [n if n not in heads else f"{attention_name(graph, n)} (attention)" for n in noisy]
    kept += [f"{name} (its input has no range)" for name in _unseen(graph, encodings)]
    lowered = lower_integers(graph, plan, read_weight)
    ordered = dict(sorted(noise.layers.items(), key=lambda item: item[1]))
    return StaticResult(lowered.graph, lowered.codes, ordered, kept, snr)


def _unseen(graph: Graph, encodings: Collection[str]) -> list[str]:
    """The weights of layers whose input had no range in any example."""
    layers = (node.inputs for node in graph.nodes if node.op in LAYERS)
    read = ((x, w) for x, w, *_ in layers if x is not None and w is not None and w.weight)
    return [w.name for x, w in read if x.constant is None and x.name not in encodings]


def calibration_examples(graph: Graph, given: Any) -> list[Example]:
    """What the caller gave, as inputs by name: tensors, arrays, tuples of them or dictionaries."""
    if given is None:
        raise RecipeError(
            "int8 needs examples to calibrate on",
            "Give calibration=[…] (--calibrate FOLDER), or use the recipe 8a8w.",
        )
    names = [value.name for value in graph.inputs]
    examples = []
    for one in given:
        if isinstance(one, Mapping):
            arrays = {str(k): _array(v) for k, v in one.items()}
        else:
            listed = list(one) if isinstance(one, (tuple, list)) else [one]
            if len(listed) != len(names):
                raise RecipeError(
                    f"an example to calibrate on has {len(listed)} inputs, and the module "
                    f"takes {len(names)}: {', '.join(names)}"
                )
            arrays = dict(zip(names, map(_array, listed), strict=True))
        examples.append(_checked(graph.inputs, arrays))
    if not examples:
        raise RecipeError("there is nothing to calibrate on", "Give at least one example.")
    return examples


def _array(value: Any) -> Array:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()  # numpy has no bfloat16
    array: Array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return array


def _checked(inputs: Sequence[Value], arrays: dict[str, Array]) -> Example:
    sizes: dict[str, int] = {}
    for value in inputs:
        if value.name not in arrays:
            raise RecipeError(f"an example to calibrate on lacks the input {value.name!r}")
        array = arrays[value.name]
        wanted = value.dtype.numpy
        if array.dtype.kind != wanted.kind or array.dtype.kind not in "fib":
            raise RecipeError(
                f"an example to calibrate on has {array.dtype} for the input {value.name!r}, "
                f"which is {wanted}"
            )
        check_shape(value, array.shape, sizes)
        arrays[value.name] = array.astype(wanted)
    return arrays
