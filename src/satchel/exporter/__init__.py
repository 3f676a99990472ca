"""Export: from a checkpoint to one verified program file."""

from satchel.exporter.job import ExportJob, ExportPlan, export
from satchel.exporter.options import ExportOptions

__all__ = ["ExportJob", "ExportOptions", "ExportPlan", "export"]
