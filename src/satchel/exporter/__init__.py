"""Export: from a checkpoint to one verified program file."""

from satchel.exporter.checkpoint import ModelExport, prepare_export
from satchel.exporter.entry import export
from satchel.exporter.options import ExportOptions
from satchel.exporter.pipeline import Export, ExportPlan
from satchel.exporter.speech import prepare_any_export

__all__ = [
    "Export",
    "ExportOptions",
    "ExportPlan",
    "ModelExport",
    "export",
    "prepare_any_export",
    "prepare_export",
]
