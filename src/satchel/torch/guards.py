"""What a module has asked of sizes that change, and a program does not ask again."""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

_SIZE = re.compile(r"L\['(\w+)'\]((?:\[[^\]]*\])*)\.size\(\)\[(\d+)\]")
_MOST_TRIED = 4096
_LONGEST = 4096

_Function = Callable[[Any, Any], Any]
_BINARY: dict[type, _Function] = {ast.Add: operator.add, ast.Sub: operator.sub}
_BINARY |= {ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}
_COMPARISONS: dict[type, _Function] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_COMPARISONS |= {ast.Lt: operator.lt, ast.LtE: operator.le}
_COMPARISONS |= {ast.Gt: operator.gt, ast.GtE: operator.ge}
_CALLS: dict[str, Callable[..., Any]] = {"min": min, "max": max}


def unanswered(program: Any) -> list[str]:
    """Conditions on sizes that some sizes do not meet, within the bounds that were given."""
    guards = dict.fromkeys(getattr(program, "_guards_code", None) or [])
    known = _sizes_of_inputs(program) if guards else {}
    return [_readable(guard) for guard in guards if not _always(guard, known, program)]


def _readable(guard: str) -> str:
    return _SIZE.sub(r"\1\2.shape[\3]", guard)


def _sizes_of_inputs(program: Any) -> dict[str, Any]:
    """By the text that stands for a size in a condition: torch's expression of it."""
    form, given = program.module_call_graph[0].signature, program.graph_signature.user_inputs
    if form is None or form.in_spec.num_leaves != len(given):
        return {}
    args, kwargs = pytree.tree_unflatten(list(given), form.in_spec)
    named = dict(zip(form.forward_arg_names or (), args, strict=False)) | dict(kwargs)
    nodes = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    sizes = {}
    for path, name in pytree.tree_flatten_with_path(named)[0]:
        tensor = nodes.get(name)
        for axis, size in enumerate(tensor.shape if isinstance(tensor, torch.Tensor) else ()):
            expression = size if isinstance(size, int) else size.node.expr
            sizes[f"L{pytree.keystr(path)}.size()[{axis}]"] = expression
    return sizes


def _always(guard: str, known: Mapping[str, Any], program: Any) -> bool:
    """Whether it holds for all sizes that were tried, or cannot be tried."""
    texts = sorted({m[0] for m in _SIZE.finditer(guard)})
    if not texts or not all(text in known for text in texts) or len(guard) > _LONGEST:
        return True
    expressions = [known[text] for text in texts]
    symbols = sorted(
        {s for e in expressions if not isinstance(e, int) for s in e.free_symbols}, key=str
    )
    ranges = []
    for symbol in symbols:
        bounds = program.range_constraints.get(symbol)
        if bounds is None or not bounds.upper < 1 << 31:
            return True  # which is refused elsewhere
        ranges.append(range(max(1, int(bounds.lower)), int(bounds.upper) + 1))
    each = max(4, int(_MOST_TRIED ** (1 / max(1, len(ranges)))))
    text = _SIZE.sub(lambda m: f"size_{texts.index(m[0])}", guard)
    try:
        condition = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        return True
    for numbers in itertools.product(*(_some(r, each) for r in ranges)):
        chosen = dict(zip(symbols, numbers, strict=True))
        values = {
            f"size_{i}": e if isinstance(e, int) else int(e.subs(chosen))
            for i, e in enumerate(expressions)
        }
        try:
            if not _value(condition, values):
                return False
        except (_UnknownError, ArithmeticError, RecursionError):
            return True
    return True


def _some(numbers: range, count: int) -> list[int]:
    """All of them, or as many from both ends."""
    if len(numbers) <= count:
        return list(numbers)
    return [*numbers[: count // 2], *numbers[-(count // 2) :]]


class _UnknownError(Exception):
    """A part of a condition that is no arithmetic."""


def _value(node: ast.expr, sizes: Mapping[str, int]) -> Any:
    """A condition may come from a file: it is read, and not run as Python."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in sizes:
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, sizes)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, sizes)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.BoolOp):
        join = all if isinstance(node.op, ast.And) else any
        return join(_value(each, sizes) for each in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return _CALLS[node.func.id](*(_value(each, sizes) for each in node.args))
    if isinstance(node, ast.Compare) and all(type(one) in _COMPARISONS for one in node.ops):
        parts = [_value(each, sizes) for each in (node.left, *node.comparators)]
        return all(
            _COMPARISONS[type(one)](a, b)
            for one, a, b in zip(node.ops, parts[:-1], parts[1:], strict=True)
        )
    raise _UnknownError
