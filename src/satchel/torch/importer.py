"""From an exported PyTorch program to a graph. Weights are arrays until `take_weights`."""

from __future__ import annotations

import inspect
import operator
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export.graph_signature import InputKind, OutputKind

from satchel.errors import GraphError, ImportModuleError, UnsupportedOperatorError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import DType, Graph, Sym, TensorType, Value
from satchel.quantize.affine import CodedMatrix
from satchel.torch.guards import unanswered
from satchel.torch.lowering import Lowering
from satchel.torch.names import output_names
from satchel.torch.operators.choose import known_count, most_chosen
from satchel.torch.operators.complex_numbers import COMPLEX, Pair, join_pair, split_pair
from satchel.torch.operators.empty import of_nothing
from satchel.torch.operators.registry import OperatorError, find_operator
from satchel.torch.sizes import Sizes
from satchel.torch.whole_numbers import NARROW, bring_to_one_type, come_around, narrowed

Array = NDArray[Any]

_ADVICE = "Write these parts with other operators, or say what you miss. Nothing has been written."
_NOTHING = {"_assert_scalar", "_assert_async", "sym_constrain_range", "_assert_tensor_metadata"}
_NOTHING |= {"sym_constrain_range_for_size", "sym_size", "sym_numel", "sym_storage_offset"}
_NOTHING |= {"_linalg_check_errors"}


# What a module changes in itself: these buffers become states of the program.
_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


@dataclass
class ImportedModule:
    """A graph whose parameters are still constants, and the names that the caller knows."""

    graph: Graph
    input_names: list[str] = field(default_factory=list)
    coded: list[CodedMatrix] = field(default_factory=list)  # what comes quantised
    seed: str | None = None  # the input that random numbers are made of


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
        self.sizes = Sizes(program, self.low)
        signature = program.graph_signature
        self.specs = {spec.arg.name: spec for spec in signature.input_specs}
        self.changed = {s.target for s in signature.output_specs if s.kind in _CHANGES}

    def run(self) -> ImportedModule:
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(self.program.graph_module, node)
            elif node.op == "call_function":
                self.values[node] = self._call(node)
            elif node.op == "output":
                self._outputs(node)
        self._check_input_sizes()
        if self.problems:
            raise UnsupportedOperatorError(list(self.problems), _ADVICE)
        for condition in unanswered(self.program):
            warnings.warn(
                f"the module asks whether {condition}; a program takes it for granted, and sizes "
                "of which it does not hold give other numbers",
                stacklevel=2,
            )
        names = [v.name for v in self.builder.graph.inputs]
        seed = self.low.seed.name if self.low.seed else None
        return ImportedModule(self.builder.finish(), names, self.low.coded, seed)

    # --- inputs, parameters, outputs ---

    def _placeholder(self, node: Any) -> Value | Pair | None:
        spec = self.specs[node.name]
        name, target = node.name, spec.target
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            stored = self.program.state_dict
            tensor = stored[target] if target in stored else self.program.constants[target]
            if target in self.changed:
                return self._state(target, tensor)
            if tensor.is_complex():
                return self._complex_constant(target, tensor)
            return self.low.constant(_array(target, tensor), target)
        example = node.meta.get("val")
        if spec.kind == InputKind.TOKEN or not isinstance(example, torch.Tensor):
            return None  # a number, None or an order of effects: part of the program
        try:
            pairs = (2,) if example.is_complex() else ()  # the real and the imaginary part
            shape = (*self.sizes.shape(example), *pairs)
            value = self.builder.input(name, shape, _result_dtype(example))
        except (OperatorError, GraphError) as error:
            raise ImportModuleError(f"the input {name}: {error}") from None
        if any(isinstance(d, Sym) for d in value.shape) and self.low.symbolic is None:
            self.low.symbolic = value
        return split_pair(self.low, value) if pairs else value

    def _check_input_sizes(self) -> None:
        """A size that inputs only have multiples of cannot be found out by a run."""
        inputs = self.builder.graph.inputs
        given = {d.name for v in inputs for d in v.shape if isinstance(d, Sym)}
        for value in inputs:
            for d in value.shape:
                if isinstance(d, Sym) and d.steps and not d.bases <= given:
                    raise ImportModuleError(
                        f"the input {value.name} has a size that is computed from one that no "
                        f"input has: {d.name}",
                        "Give a Dim itself, and not what is computed from it, or a fixed size.",
                    )

    def _state(self, name: str, tensor: torch.Tensor) -> Value | Pair:
        """A buffer that the module changes; of complex numbers both parts, one behind the other."""
        if not tensor.is_complex():
            array = _array(name, tensor)
            return self.builder.state(name, array.shape, _dtype(tensor.dtype), array)
        array = _array(name, torch.view_as_real(tensor.resolve_conj()))
        return split_pair(self.low, self.builder.state(name, array.shape, DType.f32, array))

    def _complex_constant(self, name: str, tensor: torch.Tensor) -> Pair:
        parts = torch.view_as_real(tensor.resolve_conj())
        arrays = [_array(name, parts[..., i]) for i in range(2)]
        return Pair(*(self.low.constant(array, name) for array in arrays))

    def _outputs(self, node: Any) -> None:
        """What the module returns, and then, when all has been read, what it changes."""
        kinds = self.program.graph_signature.output_specs
        results = list(zip(kinds, self._argument(node.args[0]), strict=True))
        made = {id(v) for n in self.builder.graph.nodes for v in n.outputs}
        taken: set[int] = set()
        returned = [value for spec, value in results if spec.kind == OutputKind.USER_OUTPUT]
        for name, value in zip(output_names(self.program, len(returned)), returned, strict=True):
            if value is None or isinstance(value, str):
                continue
            own = self.low.constant(np.asarray(value)) if isinstance(value, (int, float)) else value
            if isinstance(own, Pair):
                own = join_pair(self.low, own)
            if isinstance(own, Sym) and not self.problems:
                own = self.low.operand(own, DType.i64)
            if not isinstance(own, Value):
                self._problem(node, f"the output {name} is {value!r} and not a tensor")
                continue
            if own.type.is_empty:
                self._problem(node, f"the output {name} has no numbers")
                continue
            if id(own) not in made or id(own) in taken:
                own = self._copy(own)
            taken.add(id(own))
            self.builder.output(own, name)
        writes = [(s.target, v) for s, v in results if s.kind in _CHANGES]
        for target, value in writes:
            state = self.builder.graph.states[target]
            written = join_pair(self.low, value) if isinstance(value, Pair) else value
            self.builder.state_write(self.builder.state(target, state.shape, state.dtype), written)
        for spec, _ in results:
            if spec.kind == OutputKind.USER_INPUT_MUTATION:
                warnings.warn(
                    f"the module changes its input {spec.target} in place; a program never does",
                    stacklevel=2,
                )
            elif spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.TOKEN, *_CHANGES):
                self._problem(node, f"an output of the kind {spec.kind.name}")

    def _copy(self, value: Value) -> Value:
        """A method's outputs are memory of their own, each another."""
        shape = tuple(0 if isinstance(d, Sym) else d for d in value.shape)
        return self.builder.reshape(value, shape=shape)  # type: ignore[no-any-return]

    # --- operators ---

    def _call(self, node: Any) -> Any:
        target = node.target
        if target is operator.getitem:
            source, number = self.values[node.args[0]], node.args[1]
            if source[number] is None and node.users and _has_numbers(node.meta.get("val")):
                self._problem(node.args[0], f"its result number {number}")
                return self._stand_in(node.meta["val"])
            return source[number]
        example = node.meta.get("val")
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self._higher_order(node, str(target), example)
        if not isinstance(target, torch._ops.OpOverload):
            return example  # arithmetic on sizes, whose results torch knows
        return self._operator(node, target, node.args, node.kwargs, example)

    def _operator(self, node: Any, target: Any, args: Any, kwargs: Any, example: Any) -> Any:
        namespace, _, full = str(target.name()).partition("::")
        name = full.split(".")[0]
        if namespace == "aten" and name in _NOTHING:
            return example
        if namespace == "aten":
            function = find_operator(str(target)[len("aten.") :])
        else:
            function = find_operator(f"{namespace}::{full}")
        complex_numbers = _has_complex(example) or _has_complex(
            [a.meta.get("val") for a in node.all_input_nodes]
        )
        if namespace == "aten" and complex_numbers:
            function = COMPLEX.get(name)
        if function is None:
            self._problem(node, "of complex numbers" if complex_numbers else "", target)
            return self._stand_in(example)
        first = example[0] if isinstance(example, (tuple, list)) else example
        try:
            most = most_chosen(name, [self._argument(a) for a in args])
            if isinstance(first, torch.Tensor):
                if most is not None:
                    known = known_count(name, [self._argument(a) for a in args])
                    self.sizes.decide(first, most, known)
                self.low.shape, self.low.dtype = self.sizes.shape(first), _result_dtype(first)
                self.low.complex_result = first.is_complex()
            self.low.operator = name
            given = [a.meta.get("val") for a in args if isinstance(a, torch.fx.Node)]
            self.low.examples = [v for v in given if isinstance(v, torch.Tensor)]
            self.low.used = {u.args[1] for u in node.users if u.target is operator.getitem}
            keywords = {k: self._argument(v) for k, v in kwargs.items()}
            keywords = {k: v for k, v in keywords.items() if v is not None}
            positional = [self._argument(a) for a in args]
            if name.startswith("clamp") and getattr(first, "dtype", None) in NARROW:
                # Torch brings the bounds to the numbers' own width, whatever they then mean.
                positional[1:] = [narrowed(b, first.dtype) for b in positional[1:]]
                keywords = {k: narrowed(b, first.dtype) for k, b in keywords.items()}
            whole_division = bool(keywords.get("rounding_mode"))
            bring_to_one_type(self.low, name, positional, [*map(_example, args)], whole_division)
            result = self._empty(example) or of_nothing(self.low, name, positional)
            if result is None:
                result = function(self.low, *positional, **_renamed(function, keywords))
                if most is not None:
                    self.sizes.decided(first, result[0] if isinstance(result, list) else result)
            if isinstance(result, Value) and isinstance(first, torch.Tensor):
                result = come_around(self.low, name, result, first.dtype)
            return result
        except (OperatorError, GraphError, ImportModuleError) as error:
            self._problem(node, str(error), target)
        except _UNFORESEEN as error:  # arguments of a kind that the function does not expect
            self._problem(node, f"with these arguments: {error}", target)
        return self._stand_in(example)

    def _empty(self, example: Any) -> Any:
        """An operator's results where none of them has a number; else None."""
        listed = example if isinstance(example, (tuple, list)) else [example]
        tensors = [each for each in listed if isinstance(each, torch.Tensor)]
        if len(tensors) < len(listed) or 0 not in self.sizes.shape(tensors[0]):
            return None
        if not all(0 in self.sizes.shape(t) for t in tensors):
            return None
        made = [self.low.empty(self.sizes.shape(t), _result_dtype(t)) for t in tensors]
        return made if isinstance(example, (tuple, list)) else made[0]

    def _higher_order(self, node: Any, name: str, example: Any) -> Any:
        """Operators that call others: effects in order, and a choice between two graphs."""
        if name == "with_effects":
            target, *args = node.args[1:]  # the first is an order of effects
            inner = example[1] if len(example) == 2 else list(example[1:])
            made = self._operator(node, target, args, node.kwargs, inner)
            return [None, *(made if isinstance(made, (list, tuple)) else [made])]
        if name == "cond":
            condition, *branches = (self._argument(a) for a in node.args[:3])
            operands = self._argument(node.args[3])
            results = [self._inline(branch, operands) for branch in branches]
            pairs = list(zip(*results, strict=True))
            if all(isinstance(v, Value) for pair in pairs for v in pair):
                return [self._chosen(condition, *pair) for pair in pairs]
        self._problem(node, "a graph within the graph")
        return self._stand_in(example)

    def _chosen(self, condition: Value, yes: Value, no: Value) -> Value:
        """Both are computed, and one is taken."""
        dtype = DType.i32 if yes.dtype == DType.boolean else yes.dtype
        both = (self.low.cast(v, dtype) for v in (yes, no))
        truth = self.low.cast(condition, DType.boolean)
        return self.low.cast(self.low.where(truth, *both), yes.dtype)

    def _inline(self, module: torch.fx.GraphModule, operands: list[Any]) -> list[Any]:
        given = iter(operands)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(module, node)
            elif node.op == "call_function":
                self.values[node] = self._call(node)
        output = next(n for n in module.graph.nodes if n.op == "output")
        return list(self._argument(output.args[0]))

    def _attribute(self, module: torch.fx.GraphModule, node: Any) -> Any:
        found: Any = module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor):
            return self.low.constant(_array(str(node.target), found), str(node.target))
        return found

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            found = self.values[value]
            if isinstance(found, torch.SymFloat):
                return self.sizes.number(found)
            if isinstance(found, torch.SymBool):
                raise OperatorError("a choice by sizes that are not known")
            return self.sizes.size(found) if isinstance(found, torch.SymInt) else found
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        return value

    def _stand_in(self, example: Any) -> Any:
        """Something of the right type, so that the operators after it can be looked at too."""
        if isinstance(example, (list, tuple)):
            return [self._stand_in(e) for e in example]
        if not isinstance(example, torch.Tensor):
            return example
        if example.is_complex():
            return Pair(*(self._stand_in(part) for part in (example.real, example.imag)))
        try:
            return Value("unknown", TensorType(self.sizes.shape(example), _dtype(example.dtype)))
        except (OperatorError, GraphError, ImportModuleError):
            return Value("unknown", TensorType((1,)))

    def _problem(self, node: Any, reason: str, target: Any = None) -> None:
        what = str(target or node.target) if node.op == "call_function" else node.op
        path = _module_path(node)
        line = _source_line(node)
        text = what + (f" ({reason})" if reason else "")
        if path:
            text += f" in {path}"
        self.problems[text + (f" at {line}" if line else "")] = None


def _array(name: str, tensor: torch.Tensor) -> Array:
    """The numbers of a parameter, without a copy where they already are 32-bit."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ImportModuleError(f"{name} is not a plain tensor", "Convert it to a dense one.")
    if tensor.device.type == "meta":
        raise ImportModuleError(f"{name} has no data", "Load the module's weights first.")
    dense = tensor.detach().cpu().contiguous()
    dtype = _dtype(dense.dtype)
    array: Array = dense.to(getattr(torch, dtype.value)).numpy()
    return array


_DTYPES = {
    torch.float32: DType.f32,
    torch.float64: DType.f32,
    torch.float16: DType.f32,
    torch.bfloat16: DType.f32,
    torch.int64: DType.i64,
    torch.int32: DType.i32,
    torch.int16: DType.i32,
    torch.int8: DType.i32,
    torch.uint8: DType.i32,
    torch.bool: DType.boolean,
}


_UNFORESEEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError)


def _dtype(dtype: torch.dtype) -> DType:
    """Floats are computed in 32 bits, whatever the module's are; whole numbers in 32 or 64."""
    if dtype not in _DTYPES:
        raise ImportModuleError(f"{dtype} is not supported", "Use floats, whole numbers or bool.")
    return _DTYPES[dtype]


def _result_dtype(tensor: torch.Tensor) -> DType:
    """Complex numbers are pairs of floats."""
    return DType.f32 if tensor.is_complex() else _dtype(tensor.dtype)


def _example(argument: Any) -> Any:
    """The tensor that an argument stands for, where it is one."""
    found = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None


def _has_numbers(example: Any) -> bool:
    """Whether it is a tensor that is more than an order of effects, which is an empty one."""
    return isinstance(example, torch.Tensor) and tuple(example.shape) != (0,)


def _has_complex(example: Any) -> bool:
    if isinstance(example, (list, tuple)):
        return any(map(_has_complex, example))
    return isinstance(example, torch.Tensor) and example.is_complex()


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
