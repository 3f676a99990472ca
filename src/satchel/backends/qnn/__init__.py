"""The Hexagon NPU of Qualcomm's chips, with Qualcomm's own compiler.

``supports`` says whether it takes a node, ``place`` reports where the nodes of some graphs will
run; what the NPU does not take is run by the host.
"""

from satchel.backends.qnn.ops import supports
from satchel.backends.qnn.place import place_program as place

__all__ = ["place", "supports"]
