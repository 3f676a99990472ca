"""From an ONNX model to a graph. Weights are arrays until `take_weights`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper, inliner, shape_inference

from satchel.errors import (
    GraphError,
    ImportModuleError,
    UnsupportedOperatorError,
    blaming,
)
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Value
from satchel.onnx.loops import loop, scan
from satchel.onnx.operators import OPERATORS, Call
from satchel.onnx.types import NARROW_BITS, array_of, cast_to, dtype_of
from satchel.remarks import remark
from satchel.torch.lowering import Lowering
from satchel.torch.operator_error import OperatorError

_ADVICE = "Write these parts with other operators, or say what you miss. Nothing has been written."
_OWN = ("", "ai.onnx")  # the names of ONNX's own set of operators
_MOST_INLINED = 10_000
_UNFORESEEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError)
_TYPE_NAMES = {
    TensorProto.UINT8: "uint8",
    TensorProto.INT8: "int8",
    TensorProto.UINT16: "uint16",
    TensorProto.INT16: "int16",
}


# What may be larger than its type holds; all else is as small as what it was made of.
# Attributes that change nothing here: of training, of other types, or told by the shapes as well.
_ANYWHERE_WITHOUT_EFFECT = {"consumed_inputs", "broadcast", "is_test", "#types"}
_WITHOUT_EFFECT = {
    "BatchNormalization": {"momentum", "spatial"},
    "Cast": {"saturate", "round_mode"},
    "CastLike": {"saturate", "round_mode"},
    "Constant": {"value", "value_float", "value_floats", "value_int", "value_ints"},
    "Dropout": {"ratio", "seed"},
    "QuantizeLinear": {"saturate"},
    **{name: {"hidden_size", "output_sequence"} for name in ("LSTM", "GRU", "RNN")},
    **{name: {"kernel_shape"} for name in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv")},
}
_MAY_LEAVE_RANGE = frozenset(
    "Add Sub Mul Neg Abs Pow Sum BitShift BitwiseNot CumSum MatMul ReduceSum ReduceProd ReduceL1 "
    "ReduceSumSquare".split()
)
_KINDS = {
    DType.f32: TensorProto.FLOAT,
    DType.i64: TensorProto.INT64,
    DType.i32: TensorProto.INT32,
    DType.boolean: TensorProto.BOOL,
}


def read_model(path: Path) -> Any:
    """A model file, with its functions written out and the types of its values."""
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise ImportModuleError(f"{path} {what}", "Give the path of an ONNX model.")
    try:
        model = onnx.load(path)
    except (DecodeError, onnx.checker.ValidationError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ImportModuleError(f"{path} is no ONNX model ({reason})", "Fetch it again.") from None
    if model.functions:
        model = inliner.inline_local_functions(model)
    try:
        return shape_inference.infer_shapes(model)
    except (shape_inference.InferenceError, ValueError):
        return model  # types are only needed for codes of quantised operators


def import_model(model: Any, sizes: Mapping[str, int], name: str = "forward") -> Graph:
    """All operators as nodes, or one error that names everything that cannot be one."""
    advice = "The model is damaged or hostile: fetch it again, from a source that you trust."
    with blaming(ImportModuleError, "the model holds a value of the wrong kind", advice):
        return _Importer(model, sizes, name).run()


class _Importer:
    def __init__(self, model: Any, sizes: Mapping[str, int], name: str) -> None:
        self.graph = model.graph
        self.sizes = dict(sizes)
        self.versions = {o.domain: o.version for o in model.opset_import}
        self.version = next((self.versions[d] for d in _OWN if d in self.versions), 1)
        self.builder = GraphBuilder(name)
        self.low = Lowering(self.builder)
        self.values: dict[str, Any] = {}  # a Value, a list of them, or None for nothing
        self.inlined = 0
        self.types = {v.name: v.type.tensor_type.elem_type for v in self.graph.value_info}
        self.types |= {t.name: t.data_type for t in self.graph.initializer}
        for known in (self.graph.input, self.graph.output):
            self.types |= {v.name: v.type.tensor_type.elem_type for v in known}
        self.problems: dict[str, None] = {}
        self.unsized: list[str] = []

    def run(self) -> Graph:
        self._store(self.graph.initializer)
        self._check_sizes()
        for value in self.graph.input:
            if value.name not in self.values:
                self.values[value.name] = self._input(value)
        if self.unsized:
            remark(f"Sizes that the model leaves open are 1: {', '.join(self.unsized)}.")
        self._nodes(self.graph.node, {o.name for o in self.graph.output})
        if self.problems:
            raise UnsupportedOperatorError(list(self.problems), _ADVICE)
        self._outputs()
        return self.builder.finish()

    # --- inputs and outputs ---

    def _check_sizes(self) -> None:
        """Those that were given."""
        unused = [name for name in self.sizes if name not in self._named_sizes()]
        if unused:
            known = ", ".join(self._named_sizes()) or "none"
            raise ImportModuleError(f"no input has the size {unused[0]!r}", f"There are: {known}.")
        for name, size in self.sizes.items():
            if size < 1:
                raise ImportModuleError(f"the size {name} is {size}", "Give one of 1 or more.")

    def _named_sizes(self) -> list[str]:
        dims = (d for v in self.graph.input for d in v.type.tensor_type.shape.dim)
        return list(dict.fromkeys(d.dim_param for d in dims if d.dim_param))

    def _store(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            try:
                array = array_of(tensor)
                self.values[tensor.name] = self._constant(array, tensor.name)
            except (OperatorError, ValueError) as error:
                raise ImportModuleError(f"the tensor {tensor.name}: {error}") from None

    def _constant(self, array: Any, name: str) -> Value | None:
        return self.low.constant(array, name) if array.size else None  # nothing holds no numbers

    def _input(self, value: Any) -> Value:
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
            raise ImportModuleError(f"the input {value.name} is not a tensor of known rank")
        shape = []
        for place, dim in enumerate(kind.shape.dim):
            size = dim.dim_value if dim.HasField("dim_value") else self.sizes.get(dim.dim_param, 0)
            if size < 1:
                label = dim.dim_param or f"{value.name}[{place}]"
                if place:
                    raise ImportModuleError(
                        f"the model leaves the size {label} of its input {value.name} open",
                        f"Give it: --size {label}=N, or sizes={{{label!r}: N}} in Python."
                        if dim.dim_param
                        else "Give the input a fixed shape in the model.",
                    )
                if label not in self.unsized:
                    self.unsized.append(label)
                size = 1
            shape.append(size)
        try:
            return self.builder.input(value.name, tuple(shape), dtype_of(kind.elem_type))
        except (OperatorError, GraphError) as error:
            raise ImportModuleError(f"the input {value.name}: {error}") from None

    def _outputs(self) -> None:
        made = {id(v) for n in self.builder.graph.nodes for v in n.outputs}
        taken: set[int] = set()
        for output in self.graph.output:
            value = self.values.get(output.name)
            if not isinstance(value, Value):
                what = "a sequence" if isinstance(value, list) else "never made, or is empty"
                raise ImportModuleError(f"the output {output.name} is {what}")
            if id(value) not in made or id(value) in taken:
                value = self.builder.reshape(value, shape=tuple(value.shape))
            taken.add(id(value))
            self.builder.output(value, output.name)

    # --- nodes ---

    def _nodes(self, nodes: Any, outputs: set[str]) -> None:
        read = outputs | {name for node in nodes for name in _reads(node)}
        for node in nodes:
            self._node(node, read)

    def _node(self, node: Any, read: set[str]) -> None:
        if any(name and name not in self.values for name in node.input):
            if not self.problems:
                self._problem(node, "which reads what nothing makes")
            return  # what it needs has been told
        inputs = [self.values.get(name) if name else None for name in node.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        wanted = [i for i, name in enumerate(node.output, 1) if name in read]
        attributes = {a.name: _attribute(a) for a in node.attribute}
        attributes["#types"] = [_TYPE_NAMES.get(self.types.get(n, 0), "") for n in node.input]
        call = Call(node.op_type, attributes, self.version, max(wanted, default=1))
        try:
            results = self._results(node, call, inputs)
        except (OperatorError, GraphError, ImportModuleError) as error:
            self._problem(node, str(error))
            return
        except _UNFORESEEN as error:
            self._problem(node, f"with these inputs: {error}")
            return
        for name, value in zip(node.output, results, strict=False):
            if name:
                self.values[name] = self._wrapped(node, name, value)

    def _wrapped(self, node: Any, name: str, value: Value | None) -> Value | None:
        """Whole numbers of 8 and 16 bits, which are computed in 32, come around."""
        kind = self.types.get(name, 0)
        if value is None or kind not in NARROW_BITS or node.op_type not in _MAY_LEAVE_RANGE:
            return value
        return cast_to(self.low, value, kind)

    def _results(self, node: Any, call: Call, inputs: list[Value | None]) -> list[Value | None]:
        if node.domain not in _OWN:
            raise OperatorError(f"of the set {node.domain}")
        if node.op_type == "If":
            return self._branch(call, inputs[0])
        if node.op_type in ("Loop", "Scan"):
            unroll = loop if node.op_type == "Loop" else scan
            return unroll(self.low, call, self._inline, inputs)
        function = OPERATORS.get(node.op_type)
        if function is None:
            return self._written_out(node)
        self.low.operator = node.op_type
        made = function(self.low, call, *inputs)
        self._refuse_unread(node, call)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def _refuse_unread(self, node: Any, call: Call) -> None:
        """An attribute that nobody has read would be ignored: then it must be the usual one."""
        without = _WITHOUT_EFFECT.get(node.op_type, set())
        for attribute in node.attribute:
            if attribute.name in call.asked | without | _ANYWHERE_WITHOUT_EFFECT:
                continue
            value = _attribute(attribute)
            if value != self._usual(node.op_type, attribute.name):
                raise OperatorError(f"with the attribute {attribute.name}={value!r}")

    def _usual(self, operator: str, name: str) -> Any:
        """What an attribute is by ONNX's definition where it is not given."""
        try:
            schema: Any = onnx.defs.get_schema(operator, self.version, "")
        except onnx.defs.SchemaError:
            return None
        described = schema.attributes.get(name)
        usual = described.default_value if described is not None else None
        return _attribute(usual) if usual is not None and usual.name else None

    def _branch(self, call: Call, condition: Value | None) -> list[Value | None]:
        """One of two graphs if it is known which; else both are computed, and one is taken."""
        if condition is None:
            raise OperatorError("without a condition")
        graphs = [call.get("then_branch"), call.get("else_branch")]
        if condition.constant is None:
            yes, no = (self._inline(graph, []) for graph in graphs)
            return [self._chosen(condition, *pair) for pair in zip(yes, no, strict=True)]
        graph = graphs[not condition.constant.reshape(-1)[0]]
        return self._inline(graph, [])

    def _chosen(self, condition: Value, yes: Value | None, no: Value | None) -> Value:
        if yes is None or no is None or yes.type != no.type:
            raise OperatorError("a choice at run time between results of two shapes or types")
        dtype = DType.i32 if yes.dtype == DType.boolean else yes.dtype
        both = (self.low.cast(v, dtype) for v in (yes, no))
        truth = self.low.reshape(self.low.cast(condition, DType.boolean), ())
        return self.low.cast(self.low.where(truth, *both), yes.dtype)

    def _inline(self, graph: Any, inputs: Sequence[Value | None]) -> list[Value | None]:
        """A graph within the graph, whose names are its own; once more, they mean other values."""
        told = len(self.problems)
        self.inlined += 1
        if self.inlined > _MOST_INLINED:  # loops within loops
            raise OperatorError(f"more than {_MOST_INLINED} graphs within the graph")
        self._store(graph.initializer)
        self.values |= {v.name: given for v, given in zip(graph.input, inputs, strict=False)}
        self._nodes(graph.node, {o.name for o in graph.output})
        if len(self.problems) > told:
            raise OperatorError("whose graph has what is told here too")
        return [self.values.get(o.name) for o in graph.output]

    def _written_out(self, node: Any) -> list[Value | None]:
        """An operator that ONNX itself writes with others."""
        try:
            schema: Any = onnx.defs.get_schema(node.op_type, self.version, "")
        except onnx.defs.SchemaError:
            raise OperatorError(f"which version {self.version} of ONNX does not have") from None
        body = self._body(schema, node)
        if body is None:
            raise OperatorError("")
        prefix = f"{node.op_type}#{len(self.values)}/"
        names = dict(zip(body.input, [*node.input, *[""] * len(body.input)], strict=False))
        outer = dict(zip(body.output, node.output, strict=False))
        given = {a.name: a for a in node.attribute}
        renamed = []
        for inner in body.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(inner)
            copy.input[:] = [names.get(n, prefix + n) if n else "" for n in inner.input]
            copy.output[:] = [outer.get(n, prefix + n) if n else "" for n in inner.output]
            del copy.attribute[:]
            for attribute in inner.attribute:
                named = attribute.ref_attr_name
                usual = (
                    schema.attributes[named].default_value if named in schema.attributes else None
                )
                source = given.get(named, usual) if named else attribute
                if source is not None and source.name:
                    own = copy.attribute.add()
                    own.CopyFrom(source)
                    own.name = attribute.name
            renamed.append(copy)
        self._nodes(renamed, set(node.output))
        return [self.values.get(name) for name in node.output]

    def _body(self, schema: Any, node: Any) -> Any:
        """What ONNX writes an operator with, which may depend on its inputs' types."""
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        types = []
        for name in node.input:
            value = self.values.get(name)
            kind = self.types.get(name) or (_KINDS[value.dtype] if value else TensorProto.UNDEFINED)
            shape = [int(d) for d in value.shape] if value else []
            types.append(helper.make_tensor_type_proto(kind, shape).SerializeToString())
        body = onnx.FunctionProto()
        body.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), types))
        return body if body.node else None

    def _problem(self, node: Any, reason: str) -> None:
        text = node.op_type + (f" ({reason})" if reason else "")
        self.problems[text + (f" in {node.name}" if node.name else "")] = None


def _attribute(attribute: Any) -> Any:
    value = helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.STRING:
        return value.decode()
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode() for text in value]
    if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        return list(value)
    return value


def _reads(node: Any) -> Iterable[str]:
    """The names that a node reads, also within graphs of its own."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from (o.name for o in attribute.g.output)
            for inner in attribute.g.node:
                yield from _reads(inner)
