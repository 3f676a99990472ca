"""Ways to round weights to the same bits: what is stored has the same form for all of them."""

from satchel.quantize.rounding.rounder import PLAIN, ROUNDINGS, Rounded, Rounder, check_rounding

__all__ = ["PLAIN", "ROUNDINGS", "Rounded", "Rounder", "check_rounding"]
