"""torch.export, and the decompositions that leave the operators that we know."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table

from satchel.errors import ImportModuleError
from satchel.torch.assigned_buffers import AssignedBuffers
from satchel.torch.attributes import Watch, answers_differ, tensors_as_buffers
from satchel.torch.dataclass_trees import dataclasses_returned, know_dataclasses
from satchel.torch.operators import OPERATORS
from satchel.torch.other_forms import without_questions
from satchel.torch.tensor_indices import TensorIndices


def capture(
    module: Any,
    example_inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Any:
    """A module, or what torch.export made of one, as a program of operators that we mostly know."""
    if not isinstance(module, (torch.nn.Module, torch.export.ExportedProgram)):
        raise ImportModuleError(
            f"{type(module).__name__} is not a torch.nn.Module",
            "Give a module, or the path or name of a checkpoint.",
        )
    if isinstance(module, torch.nn.Module) and module.training and not _is_exported(module):
        raise ImportModuleError("the module is in training mode", "Call module.eval() first.")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if isinstance(module, torch.nn.Module):
                return _followed(module, tuple(example_inputs), dict(kwargs or {}), dynamic_shapes)
            return _decomposed(module)
    except ImportModuleError:
        raise
    except Exception as error:  # torch raises many kinds of its own
        reason = " ".join(str(error).split())[:600]
        raise ImportModuleError(
            f"torch.export failed with {type(error).__name__}: {reason}",
            "The module must run on the example inputs without data-dependent control flow.",
        ) from error


def _followed(
    module: torch.nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """What a module computes, whichever attributes it writes to.

    Most write what they find again as it was, such as tables of positions. If not, tensors in
    attributes are taken for buffers, and what else the next result depends on is refused.
    """

    know_dataclasses((inputs, kwargs))

    def follow() -> tuple[torch.export.ExportedProgram, list[str]]:
        buffers = AssignedBuffers(module)
        with (
            Watch(module) as watch,
            buffers,
            dataclasses_returned(module),
            TensorIndices(),
            without_questions(),
            _without_graphs(),
        ):
            exported = torch.export.export(module, inputs, kwargs, dynamic_shapes=dynamic_shapes)
        return _decomposed(exported), watch.changed

    try:
        program, changed = follow()
        if not changed or not answers_differ(module, inputs, kwargs):
            return program
    except RuntimeError as error:
        if "mutated in the forward method" not in str(error):
            raise
    with tensors_as_buffers(module):
        program, changed = follow()
        if changed and answers_differ(module, inputs, kwargs):
            raise ImportModuleError(
                f"the next result depends on {', '.join(changed)}, which the module sets and which "
                "is no buffer",
                'Write self.register_buffer("NAME", tensor): a program follows what it becomes.',
            )
    return program


def _decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    made = exported.run_decompositions(_decompositions("torchao" in sys.modules))
    asked = getattr(exported, "_guards_code", None)
    if asked and not made._guards_code:  # torch forgets those of a program that was saved
        made._guards_code = asked
    return made


@contextmanager
def _without_graphs() -> Iterator[None]:
    """Torch writes the whole graph so far to stderr where it fails; what else is written stays."""
    written = io.StringIO()
    with redirect_stderr(written):
        yield
    sys.stderr.write(written.getvalue())


def _is_exported(module: torch.nn.Module) -> bool:
    """Whether it is ``ExportedProgram.module()``, which says training and knows no other mode."""
    return isinstance(module, torch.fx.GraphModule) and not any(
        node.op == "call_module" and node.target != "_guards_fn" for node in module.graph.nodes
    )


@cache
def _decompositions(_torchao: bool) -> Any:
    """Torch's own, less those of operators that we know as a whole.

    Once more when torchao has been imported, which brings operators of its own.
    """
    table = torch.export.default_decompositions()
    for operator in list(table.keys()):
        namespace, _, name = operator.name().partition("::")
        if namespace == "aten" and name.split(".")[0] in _KNOWN_NAMES:
            table.pop(operator)
    for operator, function in decomposition_table.items():
        if str(operator).removeprefix("aten.").split(".")[0] in _ALSO_WRITTEN_OUT:
            table[operator] = function
    return table


# Operators that torch can write with others, and that we have no op for.
_ALSO_WRITTEN_OUT = {"grid_sampler_2d"}
_ALSO_WRITTEN_OUT |= {f"_upsample_{kind}2d_aa" for kind in ("bilinear", "bicubic", "lanczos")}
_ALSO_WRITTEN_OUT |= set("addmv dist ldexp".split())
_ALSO_WRITTEN_OUT |= set("as_strided_copy narrow_copy permute_copy unbind_copy view_copy".split())
_ALSO_WRITTEN_OUT |= set("cauchy exponential geometric log_normal new_empty_strided".split())
_ALSO_WRITTEN_OUT |= {"tril_indices", "triu_indices"}
_KNOWN_NAMES = {name.split(".")[0] for name in OPERATORS}
