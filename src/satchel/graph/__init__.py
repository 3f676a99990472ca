"""The graph: types, builder, op list, reference interpreter, passes, memory plan."""

from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Node, RowSource, Sym, TensorType, Value, Weight

__all__ = [
    "DType",
    "Graph",
    "GraphBuilder",
    "Node",
    "RowSource",
    "Sym",
    "TensorType",
    "Value",
    "Weight",
]
