"""Ways to round weights to the same bits: what is stored has the same form for all of them."""

from satchel.quantize.rounding.rounder import ROUNDINGS, Rounded, Rounder, check_rounding

__all__ = ["ROUNDINGS", "Rounded", "Rounder", "check_rounding"]
