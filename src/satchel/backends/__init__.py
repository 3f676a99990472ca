"""Where programs run: one folder for each kind of chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.runtime.program import Instance, Program


def open_instance(program: Program, threads: int = 0, reference: bool = False) -> Instance:
    """A program running on its target; or, with ``reference``, in the reference instead.

    >>> from satchel.runtime.program import Program
    >>> open_instance(Program("model.satchel"), reference=True).kernels
    'reference'
    """
    if str(program.metadata.get("target")).startswith("qnn:"):
        from satchel.backends.qnn.instance import NpuInstance, ReferenceNpuInstance

        return ReferenceNpuInstance(program) if reference else NpuInstance(program)
    if reference:
        from satchel.eval.reference_instance import ReferenceInstance

        return ReferenceInstance(program)
    from satchel.runtime.program import Instance

    return Instance(program, threads)
