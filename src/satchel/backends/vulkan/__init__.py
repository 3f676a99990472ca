"""GPUs by Vulkan: they run the portable methods, and the CPU what they have no shaders for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from satchel import _native
from satchel.backends.cpu import PortableTarget
from satchel.backends.target import BackendGroup, Defaults, Examined, Placement, Target
from satchel.errors import ConfigError, ExecutionError
from satchel.graph.ir import Graph
from satchel.program.names import KV_METHOD, PREFILL_METHOD
from satchel.remarks import remark
from satchel.runtime.program import Instance, Program
from satchel.sources import cache_folder
from satchel.units import megabytes

_MOST_LOGITS = 512 * 1024  # of which the device chooses a token


@dataclass(frozen=True)
class VulkanTarget(PortableTarget):
    """A device by its number among those of ``satchel doctor``; without one, the first.

    Any program runs on it, whatever it was exported for: which nodes run where is decided when it
    is opened, and ``Instance.parts`` and ``Instance.refusals`` tell.
    """

    device: int = 0
    layers: int | None = None  # of a language model, from the first on; None: as many as fit

    family = "vulkan"
    backend_group = BackendGroup("vulkan", not_needed=("force_fp16",))
    form = "vulkan[:DEVICE[:LAYERS]]"
    title = "Vulkan"

    @classmethod
    def parse(cls, chip: str, options: Mapping[str, Any]) -> Target:
        device, _, layers = chip.partition(":")
        numbers = [part for part in (device, layers) if part]
        if chip.endswith(":") or not all(
            part.isascii() and part.isdigit() and len(part) < 4 for part in numbers
        ):
            raise ConfigError(
                f"there is no target {'vulkan:' + chip!r}",
                "Write vulkan, or vulkan:1 for the second device that satchel doctor lists.",
            )
        return cls(int(device or 0), int(layers) if layers else None, **options)

    @classmethod
    def examine(cls) -> Examined:
        devices, missing = list_devices()
        lines = [
            f"Vulkan    {device['name']} ({device['type']}, {device['api']}, "
            f"{megabytes(device['memory_bytes'])}, {megabytes(device['memory_left_bytes'])} free): "
            f"--target {cls(number).name}"
            for number, device in enumerate(devices)
        ]
        none = f"Vulkan    none: {missing or 'no driver has a device'}"
        return Examined(tuple(lines) or (none,), {"devices": devices, "missing": missing})

    @property
    def usual(self) -> Defaults:
        # A GPU has room for many more tokens at once than a CPU.
        return Defaults(prefill_ar_len=1024)

    @property
    def name(self) -> str:
        if self.layers is not None:
            return f"vulkan:{self.device}:{self.layers}"
        return f"vulkan:{self.device}" if self.device else "vulkan"

    def with_layers(self, layers: int) -> Target:
        return replace(self, layers=layers)

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
        devices = _native.vulkan.devices()
        layers = self.layers
        if layers is None and self.device < len(devices):
            layers = fitting_layers(program, devices[self.device])
        taken = {} if layers is None else {"layers": layers}
        executor = _native.vulkan.executor(self.device, str(cache_folder() / "vulkan"), **taken)
        device = devices[self.device]
        room = cache_bytes(program, device)
        instance = VulkanInstance(
            program, threads, min(cache_memory or room, room), executors=[executor]
        ).on(device, self.device)
        if layers is None:  # else the CPU's share was asked for, or told
            tell_fallbacks(instance, f"satchel inspect {program.path} --target {self.name}")
        return instance


class VulkanInstance(Instance):
    """Says which device it runs on, and whether that is a real one."""

    def on(self, device: Mapping[str, Any], number: int) -> VulkanInstance:
        self._device = number
        self.kernels = f"vulkan on {device['name']}, {self.kernels}"
        self.emulated = device["type"] == "software"

        def is_whole(method: str) -> bool:
            runs = [part.executor for part in self.parts if part.method == method]
            return len(runs) == 1 and runs[0] != "cpu"

        self.chooses_by_chance = is_whole(KV_METHOD) and self._vocabulary <= _MOST_LOGITS
        self.chooses_tokens |= self.chooses_by_chance
        self.chooses_together = self.chooses_by_chance and is_whole(PREFILL_METHOD)
        if "cooperative matrices" in device["features"]:
            self.other_bits_in_blocks = "the GPU multiplies long blocks by cooperative matrices"
        return self

    @property
    def _vocabulary(self) -> int:
        return int(self.method(KV_METHOD).info["outputs"][0]["shape"][-1])

    @property
    def device_memory(self) -> int:
        return self._native.device_memory

    def measure_limits(self) -> tuple[float, float]:
        found = _native.vulkan.measure(self._device)
        return found["read_bytes_s"], found["multiply_adds_s"]


def fitting_layers(program: Program, device: Mapping[str, Any]) -> int | None:
    """How many layers the device has memory for, of what others left of it; None if it has for all.

    ExecutionError, before anything is copied, if not even one fits, or the program is no language
    model, whose layers are known by their number.

    >>> fitting_layers(Program("model.satchel"), {"name": "A GPU", "memory_left_bytes": 1 << 30})
    """
    memory = int(device["memory_left_bytes"])
    count, all_layers, total = _native.vulkan.fitting_layers(program._native, memory)
    if total <= memory:
        return None
    if count == 0 or not program.is_language_model:
        raise ExecutionError(
            f"{program.path} has {megabytes(total)} of weights, and {device['name']} "
            f"{megabytes(memory)} of memory left",
            "Use --target cpu, or a recipe with fewer bits.",
        )
    remark(
        f"{device['name']} has memory for the first {count} of {all_layers} layers; the CPU "
        "runs the others. --gpu-layers chooses."
    )
    return count


def cache_bytes(program: Program, device: Mapping[str, Any]) -> int:
    """What the caches of all sequences may take: a share of the memory that is left, and of each
    cache what a shader can see at once.

    >>> small = {"largest_binding": 1 << 20, "memory_left_bytes": 1 << 30}
    >>> cache_bytes(Program("model.satchel"), small) <= 1 << 22
    True
    """
    binding, memory = int(device["largest_binding"]), int(device["memory_left_bytes"])
    return _native.vulkan.cache_bytes(program._native, binding, memory)


def tell_fallbacks(instance: Instance, lists: str) -> None:
    """Remarks on what the CPU runs, which costs a way to the device and back each time."""
    left = Counter({refusal.reason: 0 for refusal in instance.refusals})
    for refusal in instance.refusals:
        left[refusal.reason] += refusal.nodes
    if not left:
        return
    nodes = sum(part.last - part.first for part in instance.parts)
    ((reason, _),) = left.most_common(1)
    more = f", and {len(left) - 1} more reasons" if len(left) > 1 else ""
    remark(f"{left.total()} of {nodes} nodes run on the CPU: {reason}{more}. `{lists}` lists them.")


def list_devices() -> tuple[list[dict[str, Any]], str]:
    """The devices of this machine, and where there is no Vulkan, what is missing.

    >>> devices, missing = list_devices()
    """
    try:
        return _native.vulkan.devices(), ""
    except ExecutionError as error:
        return [], str(error)
