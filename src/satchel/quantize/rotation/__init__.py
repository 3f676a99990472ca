"""Rotations folded into the weights: outliers are spread over all channels before rounding."""

from satchel.quantize.rotation.checkpoint import RotatedCheckpoint
from satchel.quantize.rotation.online import insert_rotations
from satchel.quantize.rotation.plan import RotationPlan, plan_rotation, untie_head

__all__ = ["RotatedCheckpoint", "RotationPlan", "insert_rotations", "plan_rotation", "untie_head"]
