"""What ``satchel export --plan`` says of a checkpoint or a module."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.output import count, emit, print_json
from satchel.units import megabytes

if TYPE_CHECKING:
    from satchel.exporter import Export, ExportPlan


def describe_export(export: Export, plan: ExportPlan, output: Path) -> dict[str, Any]:
    """The document of ``--json``, as far as it is known beforehand."""
    return {
        "output": str(output),
        "name": export.name,
        "architecture": export.portable.describe({}).architecture,
        "recipe": export.portable.description,
        "context": export.portable.context or None,
        "plan": plan.to_dict(),
    }


def print_plan(export: Export, plan: ExportPlan, output: Path, remarks: list[str]) -> None:
    portable = export.portable
    emit(f"{export.name}: {count(plan.parameters)} parameters, {portable.description}")
    emit(f"file         {output}, {megabytes(plan.file_size)}")
    emit(f"peak memory  {megabytes(plan.peak_memory)}")
    for remark in remarks:
        emit(remark)
    context = f", context {portable.context}" if portable.context else ""
    emit(f"methods      {', '.join(plan.methods)}{context}")
    for payload in plan.payloads.values():
        emit("\n".join(payload.lines))


def report_written(
    arguments: Namespace, document: dict[str, Any], output: Path, seconds: float
) -> None:
    """What was made, where that is not a program of ours."""
    from satchel.machine import peak_with_children

    parts = [p for p in output.rglob("*") if p.is_file()] if output.is_dir() else [output]
    size = sum(part.stat().st_size for part in parts)
    peak = peak_with_children()
    if arguments.json:
        print_json(document | {"file_size_bytes": size, "seconds": seconds, "peak_rss_bytes": peak})
        return
    emit(f"{output}  {megabytes(size)}, {document['recipe']}")
    emit(f"in {seconds:.1f} s with at most {megabytes(peak)} of memory")
