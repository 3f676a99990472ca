"""Static quantisation: ranges of activations are measured on examples and fixed at export."""

from satchel.quantize.static.calibrate import (
    calibrate,
    calibration_targets,
    native_runner,
    reference_runner,
)
from satchel.quantize.static.encoding import ActivationEncoding
from satchel.quantize.static.heads import HeadSteps, attention_name
from satchel.quantize.static.lower import LoweredGraph, lower_integers, read_lowered
from satchel.quantize.static.observers import OBSERVERS, Observer, make_observer
from satchel.quantize.static.plan import IntegerPlan, plan_integers
from satchel.quantize.static.qdq import (
    LayerNoise,
    PlannedInterpreter,
    QdqInterpreter,
    decibels,
    layer_noise,
    measure_noise,
    own_noise,
    quantize_rows,
    round_rows,
    signal_to_noise,
    worst_decibels,
)
from satchel.quantize.static.search import choose_layers

__all__ = [
    "OBSERVERS",
    "ActivationEncoding",
    "HeadSteps",
    "IntegerPlan",
    "LayerNoise",
    "LoweredGraph",
    "Observer",
    "PlannedInterpreter",
    "QdqInterpreter",
    "attention_name",
    "calibrate",
    "calibration_targets",
    "choose_layers",
    "decibels",
    "layer_noise",
    "lower_integers",
    "make_observer",
    "measure_noise",
    "native_runner",
    "own_noise",
    "plan_integers",
    "quantize_rows",
    "read_lowered",
    "reference_runner",
    "round_rows",
    "signal_to_noise",
    "worst_decibels",
]
