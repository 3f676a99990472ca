"""Export: from a checkpoint to one verified program file."""

from satchel.exporter.checkpoint import ModelExport, prepare_export
from satchel.exporter.entry import export
from satchel.exporter.options import ExportOptions
from satchel.exporter.pipeline import Export, ExportPlan

__all__ = ["Export", "ExportOptions", "ExportPlan", "ModelExport", "export", "prepare_export"]
