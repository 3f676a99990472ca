"""Writes a graph of plain ops as an ONNX model in which every value is quantised.

Each value is computed, quantised and dequantised again: the form from which the provider makes
integer ops. Inputs and outputs are the codes themselves. Weights lie in a file beside the model,
which the models of several methods share.

Images lie channels-last in Satchel's graphs and channels-first in ONNX. A convolution's result is
kept in ONNX's order until something asks for the other, so that a chain of layers, with what works
on each element between them, is never transposed.
"""

from satchel.backends.qnn.onnx_writer import functions, layers  # noqa: F401  they register
from satchel.backends.qnn.onnx_writer.writer import ExternalData, OnnxWriter

__all__ = ["ExternalData", "OnnxWriter"]
