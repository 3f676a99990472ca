"""jinja2's sandbox as Hugging Face's templates expect it, with bounds on all that they do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Joiner, pass_context
from jinja2.visitor import NodeTransformer

from satchel.llm.template_budget import budget
from satchel.llm.template_functions import (
    GLOBALS,
    BoundFormat,
    allowed_filters,
    call_method,
    format_percent,
)

# Filters that the compiler puts in. No template can call them: their names have a space.
_TURNS, _JOINED, _KEPT = " turns", " joined", " kept"
_INTERNAL = ("_loop_vars", "_block_vars")  # what jinja2's own code passes to every call


class _GenerationTag(Extension):
    """``{% generation %}`` marks what the model wrote, for training; here it is just text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own form

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Turns:
    """What a loop goes through; each turn is a step."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            budget().step()
            yield item


def _joined(values: list[Any]) -> str:
    """The operator ``~``."""
    budget().step()
    budget().weigh(values)
    text: str = budget().keep("".join(map(str, values)))
    return text


@pass_context  # so that it is not done once and for all by the compiler
def _written(_: Any, value: Any) -> str:
    """What ``{{ }}`` and plain text write."""
    if not isinstance(value, str):
        budget().weigh(value)
    text = value if isinstance(value, str) else str(value)
    budget().step()
    budget().write(len(text))
    return text


class _Metered(NodeTransformer):
    """Puts the budget into what the sandbox does not see: loops, ``~``, lists, plain text."""

    def _wrapped(self, node: nodes.Node, name: str) -> nodes.Filter:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = self._wrapped(node.iter, _TURNS)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrapped(nodes.List(node.nodes, lineno=node.lineno), _JOINED)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrapped(node, _KEPT)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrapped(node, _KEPT)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return node if node.ctx == "store" else self._wrapped(node, _KEPT)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._wrapped(node, _KEPT) if isinstance(node.arg, nodes.Slice) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        text = nodes.Const(node.data, lineno=node.lineno)
        return nodes.MarkSafeIfAutoescape(text, lineno=node.lineno)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A template's operators, calls and loops spend a budget, see template_budget.py."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_written,
            extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
        )
        keep = lambda value: budget().keep(value)  # noqa: E731 - the budget of each rendering
        self.filters = {**allowed_filters(), _TURNS: _Turns, _JOINED: _joined, _KEPT: keep}
        self.globals = {"range": safe_range, **GLOBALS}

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        return super()._generate(_Metered().visit(source), *args, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        limits = budget()
        limits.step()
        if operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(text, str | list | tuple):
                    limits.allow(len(text) * times)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            limits.allow(left.bit_length() * abs(right))
        elif operator == "%" and isinstance(left, str):
            return limits.keep(format_percent(left, right))
        return limits.keep(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Any:
        owner = getattr(value, "__self__", None)
        if isinstance(owner, str) and value.__name__ == "format":
            return BoundFormat(self, str(owner))
        return None

    def call(__self, __context: Any, __obj: Any, *args: Any, **named: Any) -> Any:  # noqa: N805
        limits = budget()
        limits.step()
        given = {name: named[name] for name in named if name not in _INTERNAL}
        if isinstance(__obj, Macro | BlockReference | Undefined | Joiner | BoundFormat):
            limits.weigh((args, given))
        elif isinstance(__obj, LoopContext):
            limits.step(sum(map(len, args)))
        elif __obj is not safe_range and __obj not in GLOBALS.values():
            if not __self.is_safe_callable(__obj):
                raise SecurityError(f"{__obj!r} is not safely callable")
            return limits.keep(call_method(__obj, *args, **given))
        return limits.keep(__context.call(__obj, *args, **named))


@cache
def environment() -> BoundedEnvironment:
    """The one that all templates share."""
    return BoundedEnvironment()
