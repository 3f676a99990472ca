"""Export: from a checkpoint to one verified program file."""

from satchel.exporter.entry import export
from satchel.exporter.job import ExportJob, ExportPlan
from satchel.exporter.options import ExportOptions

__all__ = ["ExportJob", "ExportOptions", "ExportPlan", "export"]
