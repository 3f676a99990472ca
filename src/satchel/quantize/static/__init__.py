"""Static quantisation: ranges of activations are measured on examples and fixed at export."""

from satchel.quantize.static.calibrate import calibrate, calibration_targets
from satchel.quantize.static.encoding import ActivationEncoding
from satchel.quantize.static.observers import OBSERVERS, Observer, make_observer
from satchel.quantize.static.qdq import QdqInterpreter, quantize_rows, signal_to_noise

__all__ = [
    "OBSERVERS",
    "ActivationEncoding",
    "Observer",
    "QdqInterpreter",
    "calibrate",
    "calibration_targets",
    "make_observer",
    "quantize_rows",
    "signal_to_noise",
]
