"""From an exported PyTorch program to a graph. Weights are arrays until `take_weights`."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray

from satchel.errors import GraphError, ImportModuleError, UnsupportedOperatorError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Dim, DType, Graph, Shape, Sym, TensorType, Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError, find_operator

Array = NDArray[Any]

_ADVICE = "Write these parts with other operators, or say what you miss. Nothing has been written."
_NOTHING = {"_assert_scalar", "_assert_async", "sym_constrain_range", "_assert_tensor_metadata"}
_NOTHING |= {"sym_constrain_range_for_size", "sym_size", "sym_numel", "sym_storage_offset"}


@dataclass
class ImportedModule:
    """A graph whose parameters are still constants, and the names that the caller knows."""

    graph: Graph
    input_names: list[str] = field(default_factory=list)


def import_program(program: Any, name: str = "forward") -> ImportedModule:
    """All operators as nodes, or one error that names everything that cannot be one."""
    return _Importer(program, name).run()


class _Importer:
    def __init__(self, program: Any, name: str) -> None:
        self.program = program
        self.builder = GraphBuilder(name)
        self.low = Lowering(self.builder)
        self.values: dict[Any, Any] = {}
        self.problems: dict[str, None] = {}  # in order, each once
        self.symbols: dict[str, Sym] = {}

    def run(self) -> ImportedModule:
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node)
            elif node.op == "call_function":
                self.values[node] = self._call(node)
            elif node.op == "output":
                self._outputs(node)
        if self.problems:
            raise UnsupportedOperatorError(list(self.problems), _ADVICE)
        return ImportedModule(self.builder.finish(), [v.name for v in self.builder.graph.inputs])

    # --- inputs, parameters, outputs ---

    def _placeholder(self, node: Any) -> Value | None:
        signature = self.program.graph_signature
        name = node.name
        for table, stored in (
            (signature.inputs_to_parameters, self.program.state_dict),
            (signature.inputs_to_buffers, self.program.state_dict),
            (signature.inputs_to_lifted_tensor_constants, self.program.constants),
        ):
            if name in table:
                target = table[name]
                tensor = stored[target] if target in stored else self.program.constants[target]
                return self.low.constant(_array(target, tensor), target)
        example = node.meta.get("val")
        if not isinstance(example, torch.Tensor):
            return None  # a number or None that torch.export has made part of the program
        try:
            value = self.builder.input(name, self._shape(example), _dtype(example.dtype))
        except (OperatorError, GraphError) as error:
            raise ImportModuleError(f"the input {name}: {error}") from None
        if any(isinstance(d, Sym) for d in value.shape) and self.low.symbolic is None:
            self.low.symbolic = value
        return value

    def _outputs(self, node: Any) -> None:
        made = {id(v) for n in self.builder.graph.nodes for v in n.outputs}
        taken: set[int] = set()
        results = self._argument(node.args[0])
        for number, value in enumerate(results):
            if not isinstance(value, Value):
                self._problem(node, f"the output {number} is {value!r} and not a tensor")
                continue
            own = value
            if id(value) not in made or id(value) in taken:
                own = self._copy(value)
            taken.add(id(own))
            self.builder.output(own, "output" if len(results) == 1 else f"output_{number}")

    def _copy(self, value: Value) -> Value:
        """A method's outputs are memory of their own, each another."""
        shape = tuple(0 if isinstance(d, Sym) else d for d in value.shape)
        return self.builder.reshape(value, shape=shape)  # type: ignore[no-any-return]

    # --- operators ---

    def _call(self, node: Any) -> Any:
        target = node.target
        if target is operator.getitem:
            source, number = self.values[node.args[0]], node.args[1]
            return source[number]
        example = node.meta.get("val")
        if not isinstance(target, torch._ops.OpOverload):
            return example  # arithmetic on sizes, whose results torch knows
        namespace, _, full = str(target.name()).partition("::")
        name = full.split(".")[0]
        if namespace == "aten" and name in _NOTHING:
            return example
        function = find_operator(str(target)[len("aten.") :]) if namespace == "aten" else None
        if function is None:
            self._problem(node, "")
            return self._stand_in(example)
        first = example[0] if isinstance(example, (tuple, list)) else example
        try:
            if isinstance(first, torch.Tensor):
                self.low.shape, self.low.dtype = self._shape(first), _dtype(first.dtype)
            self.low.operator = name
            keywords = {k: self._argument(v) for k, v in node.kwargs.items()}
            keywords = {k: v for k, v in keywords.items() if v is not None}
            positional = [self._argument(a) for a in node.args]
            return function(self.low, *positional, **_renamed(function, keywords))
        except (OperatorError, GraphError, ImportModuleError) as error:
            self._problem(node, str(error))
            return self._stand_in(example)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            found = self.values[value]
            return self._dim(found) if isinstance(found, torch.SymInt) else found
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        return value

    def _stand_in(self, example: Any) -> Any:
        """Something of the right type, so that the operators after it can be looked at too."""
        if isinstance(example, (list, tuple)):
            return [self._stand_in(e) for e in example]
        if not isinstance(example, torch.Tensor):
            return example
        try:
            return Value("unknown", TensorType(self._shape(example), _dtype(example.dtype)))
        except (OperatorError, GraphError, ImportModuleError):
            return Value("unknown", TensorType((1,)))

    def _problem(self, node: Any, reason: str) -> None:
        what = str(node.target) if node.op == "call_function" else node.op
        path = _module_path(node)
        line = _source_line(node)
        text = what + (f" ({reason})" if reason else "")
        if path:
            text += f" in {path}"
        self.problems[text + (f" at {line}" if line else "")] = None

    # --- shapes ---

    def _shape(self, tensor: torch.Tensor) -> Shape:
        return tuple(self._dim(d) for d in tensor.shape)

    def _dim(self, size: Any) -> Dim:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_integer and expression.is_number:
            return int(expression)
        name = str(expression)
        if name not in self.symbols:
            if not expression.is_symbol:
                raise OperatorError(f"a size that is computed from a symbolic one: {name}")
            bounds = self.program.range_constraints.get(expression)
            # Without a bound, torch has an infinity of its own kind, or a number near 2^63.
            finite = bounds is not None and bounds.upper < 1 << 31
            most = int(bounds.upper) if finite else 0
            if most < 1:
                raise ImportModuleError(
                    f"the symbolic size {name} has no largest value",
                    'Give one: torch.export.Dim("batch", max=8).',
                )
            self.symbols[name] = Sym(name, most)
        return self.symbols[name]


def _array(name: str, tensor: torch.Tensor) -> Array:
    """The numbers of a parameter, without a copy where they already are 32-bit."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ImportModuleError(f"{name} is not a plain tensor", "Convert it to a dense one.")
    if tensor.device.type == "meta":
        raise ImportModuleError(f"{name} has no data", "Load the module's weights first.")
    dense = tensor.detach().cpu().contiguous()
    dtype = _dtype(dense.dtype)
    if dtype == DType.i32 and dense.dtype == torch.int64:
        limits = torch.iinfo(torch.int32)
        if dense.numel() and not limits.min <= int(dense.min()) <= int(dense.max()) <= limits.max:
            raise ImportModuleError(f"{name} holds whole numbers that need more than 32 bits")
    array: Array = dense.to(getattr(torch, dtype.value)).numpy()
    return array


_DTYPES = {
    torch.float32: DType.f32,
    torch.float64: DType.f32,
    torch.float16: DType.f32,
    torch.bfloat16: DType.f32,
    torch.int64: DType.i32,
    torch.int32: DType.i32,
    torch.int16: DType.i32,
    torch.int8: DType.i32,
    torch.uint8: DType.i32,
    torch.bool: DType.boolean,
}


def _dtype(dtype: torch.dtype) -> DType:
    """Everything is computed in 32 bits, whatever the module's floats are."""
    if dtype not in _DTYPES:
        raise ImportModuleError(f"{dtype} is not supported", "Use floats, whole numbers or bool.")
    return _DTYPES[dtype]


def _renamed(function: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the function calls them; torch's own of no meaning here are dropped."""

    known = inspect.signature(function).parameters
    if any(p.kind == p.VAR_KEYWORD for p in known.values()):
        return dict(keywords)
    names = {"dim": "axes", "attn_mask": "mask", "min": "least", "max": "most", "value": "value"}
    result = {}
    for key, value in keywords.items():
        if key in known:
            result[key] = value
        elif names.get(key) in known:
            result[names[key]] = value
        elif key not in (
            "dtype",
            "layout",
            "device",
            "pin_memory",
            "memory_format",
            "non_blocking",
        ):
            raise OperatorError(f"the argument {key}={value!r}")
    return result


def _module_path(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values()]
    return str(paths[-1]) if paths else ""


def _source_line(node: Any) -> str:
    """The innermost place outside of torch, as FILE:LINE."""
    trace = node.meta.get("stack_trace") or ""
    places = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [p for p in places if "/torch/" not in p[0].replace("\\\\", "/")] or places
    return f"{own[-1][0].rsplit('/', 1)[-1]}:{own[-1][1]}" if own else ""
