"""Core ML: packages written from our graphs with coremltools, without torch."""

from satchel.backends.coreml.target import CoreMlTarget

__all__ = ["CoreMlTarget"]
