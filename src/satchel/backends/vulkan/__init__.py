"""GPUs by Vulkan: they run the portable methods, and the CPU what they have no shaders for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from satchel import _native
from satchel.backends.cpu import PortableTarget
from satchel.backends.target import BackendGroup, Defaults, Placement, Target
from satchel.errors import ConfigError, ExecutionError
from satchel.graph.ir import Graph
from satchel.runtime.program import Instance, Program
from satchel.sources import cache_folder
from satchel.units import megabytes

_PAGE_ROWS = 64  # of the caches
# What of a device's memory the caches may take, beside weights and arena.
_CACHE_SHARE = 0.5


@dataclass(frozen=True)
class VulkanTarget(PortableTarget):
    """A device by its number among those of ``satchel doctor``; without one, the first.

    Any program runs on it, whatever it was exported for: which nodes run where is decided when it
    is opened, and ``Instance.parts`` and ``Instance.refusals`` tell.
    """

    device: int = 0

    times_ops = False
    family = "vulkan"
    backend_group = BackendGroup("vulkan", not_needed=("force_fp16",))
    form = "vulkan[:DEVICE]"

    @classmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> Target:
        if chip and not (chip.isascii() and chip.isdigit() and len(chip) < 4):
            raise ConfigError(
                f"there is no target {'vulkan:' + chip!r}",
                "Write vulkan, or vulkan:1 for the second device that satchel doctor lists.",
            )
        return cls(device=int(chip or 0), **options)

    @property
    def usual(self) -> Defaults:
        # A GPU has room for many more tokens at once than a CPU.
        return Defaults(prefill_ar_len=1024)

    @property
    def name(self) -> str:
        return f"vulkan:{self.device}" if self.device else "vulkan"

    def place(self, graphs: Sequence[Graph]) -> Placement:
        """By their ops alone: what else a device refuses is known when a program is opened."""
        ops = Counter(node.op for graph in graphs for node in graph.nodes)
        own = set(_native.vulkan.ops())
        left = {op: count for op, count in ops.items() if op not in own}
        return Placement(
            super().place(graphs).graphs,
            {"vulkan": ops.total() - sum(left.values()), "cpu": sum(left.values())},
            tuple(
                {"op": op, "nodes": count, "reason": f"the GPU has no shader for {op}"}
                for op, count in left.items()
            ),
        )

    def open_with_cache(self, program: Program, threads: int, cache_memory: int) -> Instance:
        executor = _native.vulkan.executor(self.device, str(cache_folder() / "vulkan"))
        device = _native.vulkan.devices()[self.device]
        require_memory(program, device)
        room = cache_bytes(program, device)
        return VulkanInstance(
            program, threads, min(cache_memory or room, room), executors=[executor]
        ).on(device)


class VulkanInstance(Instance):
    """Says which device it runs on, and whether that is a real one."""

    def on(self, device: Mapping[str, Any]) -> VulkanInstance:
        self.kernels = f"vulkan on {device['name']}, {self.kernels}"
        self.emulated = device["type"] == "software"
        if "cooperative matrices" in device["features"]:
            self.other_bits_in_blocks = "the GPU multiplies long blocks by cooperative matrices"
        return self


def require_memory(program: Program, device: Mapping[str, Any]) -> None:
    """Refuse a program whose weights the device has no memory for, before any is copied.

    >>> require_memory(Program("model.satchel"), {"name": "A GPU", "memory_bytes": 1 << 30})
    """
    # What other targets compiled lies among the weights as plain bytes.
    own = (w for w in program.weights if w["encoding"] != "u8")
    needed = sum(w["codes_size"] + w["scales_size"] for w in own)
    if needed > device["memory_bytes"]:
        raise ExecutionError(
            f"{program.path} has {megabytes(needed)} of weights, and {device['name']} "
            f"{megabytes(device['memory_bytes'])} of memory",
            "Use --target cpu, or a recipe with fewer bits.",
        )


def cache_bytes(program: Program, device: Mapping[str, Any]) -> int:
    """What the caches of all sequences may take: a share of the device's memory, and of each
    cache what a shader can see at once.

    >>> small = {"largest_binding": 1 << 20, "memory_bytes": 1 << 30}
    >>> cache_bytes(Program("model.satchel"), small) <= 1 << 22
    True
    """
    pages: list[int] = [
        state["bytes"] // state["shape"][1] * _PAGE_ROWS
        for state in program.states
        if state["cache"]
    ]
    if not pages:
        return 0
    binding, memory = int(device["largest_binding"]), int(device["memory_bytes"])
    fitting = min(binding // max(pages), int(memory * _CACHE_SHARE) // sum(pages))
    return max(fitting, 1) * sum(pages)


def list_devices() -> tuple[list[dict[str, Any]], str]:
    """The devices of this machine, and where there is no Vulkan, what is missing.

    >>> devices, missing = list_devices()
    """
    try:
        return _native.vulkan.devices(), ""
    except ExecutionError as error:
        return [], str(error)
