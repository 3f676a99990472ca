"""A module's method ``forward``, all of which XNNPACK runs."""

from __future__ import annotations

from collections.abc import Mapping

from satchel.backends.executorch import image_ops, integer_ops  # noqa: F401  (they register)
from satchel.backends.executorch.language_model import FORWARD
from satchel.backends.executorch.method import FLOAT, Constants, MethodWriter
from satchel.backends.executorch.part import XNN_OPS, Part
from satchel.backends.weight_rows import Bytes
from satchel.encodings.encoding import Encoding
from satchel.graph.ir import Graph, largest

MODULE_OPS = frozenset(XNN_OPS) - {"rope"}  # whose angles a language model's kernels make


def module_method(
    graph: Graph,
    encodings: Mapping[str, Encoding],
    constants: Constants,
    named: dict[str, Bytes],
) -> MethodWriter:
    """The graph as one part of XNNPACK's."""
    method = MethodWriter(FORWARD, constants)
    part = Part(encodings, named, set(), {})
    tensors = {id(v): method.input(largest(v.shape), FLOAT) for v in graph.inputs}
    for node in graph.nodes:
        part.add(node)
    data, kept = part.finish(graph.outputs)
    for value in kept:
        tensors[id(value)] = method.tensor(largest(value.shape))
    given = [tensors[id(v)] for v in part.outside]
    method.delegate(data, [*given, *(tensors[id(v)] for v in kept)])
    method.outputs = [tensors[id(v)] for v in graph.outputs]
    return method
