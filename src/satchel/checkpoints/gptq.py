"""GPTQ and AWQ checkpoints of the Hugging Face layout, told by quantization_config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.packed import PackedLinear
from satchel.checkpoints.stored import ReadableTensor, StoredTensor
from satchel.errors import CheckpointError

METHODS = ("gptq", "awq")
_FULL_PRECISION = "Use the checkpoint in full precision and choose a recipe instead"


@dataclass(frozen=True)
class PackedForm:
    """What quantization_config says of all layers."""

    method: str
    bits: int
    group: int  # -1: a whole row
    symmetric: bool
    sorted: bool  # inputs were taken in the order of their weight, so that groups lie scattered
    zero_shift: int

    @staticmethod
    def read(config: Mapping[str, Any], folder: Path) -> PackedForm:
        method = config.get("quant_method")
        if method not in METHODS:
            raise CheckpointError(
                f"{folder} is already quantised ({method or 'unknown method'})", _FULL_PRECISION
            )
        bits = config.get("bits", config.get("w_bit"))
        if bits not in ((4, 8) if method == "gptq" else (4,)):
            raise CheckpointError(
                f"{folder} is quantised ({method}) to {bits!r} bits, and only 4"
                + (" and 8 are read" if method == "gptq" else " are read"),
                _FULL_PRECISION,
            )
        group = config.get("group_size", config.get("q_group_size", 128))
        if not isinstance(group, int) or (group != -1 and (group < 8 or group % 8)):
            raise CheckpointError(
                f"{folder} has the group size {group!r}, which is not a multiple of 8",
                _FULL_PRECISION,
            )
        version = str(config.get("version", "gemm")).lower()
        if method == "awq" and version != "gemm":
            raise CheckpointError(
                f"{folder} has AWQ's layout {version!r}, and only gemm is read", _FULL_PRECISION
            )
        layout = str(config.get("checkpoint_format", "gptq")).lower()
        if method == "gptq" and layout not in ("gptq", "gptq_v2"):
            raise CheckpointError(
                f"{folder} has GPTQ's layout {layout!r}, and only gptq and gptq_v2 are read",
                _FULL_PRECISION,
            )
        return PackedForm(
            method,
            bits,
            group,
            method == "gptq" and bool(config.get("sym", False)),
            bool(config.get("desc_act", False)),
            # The first layout of GPTQ stores each zero point as one less.
            1 if (method, layout) == ("gptq", "gptq") else 0,
        )

    def unpacked(
        self, tensors: Mapping[str, StoredTensor], folder: Path
    ) -> dict[str, ReadableTensor]:
        """The tensors, with the parts of each packed layer as one ``NAME.weight``."""
        found: dict[str, ReadableTensor] = {}
        for name, tensor in tensors.items():
            layer, _, part = name.rpartition(".")
            if f"{layer}.qweight" not in tensors or part == "bias":
                found[name] = tensor
            elif part == "qweight":
                found[f"{layer}.weight"] = self._layer(layer, tensors, folder)
            elif part not in ("qzeros", "scales", "g_idx"):
                raise CheckpointError(
                    f"{folder}: tensor {name} has no place in a layer quantised by {self.method}",
                    "Fetch the checkpoint again",
                )
        return found

    def _layer(self, layer: str, tensors: Mapping[str, StoredTensor], folder: Path) -> PackedLinear:
        try:
            codes, zeros, scales = (
                tensors[f"{layer}.{part}"] for part in ("qweight", "qzeros", "scales")
            )
        except KeyError as error:
            raise CheckpointError(
                f"{folder} lacks {error.args[0]}", "Fetch the checkpoint again"
            ) from None
        each = 32 // self.bits
        if any(len(t.shape) != 2 for t in (codes, zeros, scales)):
            raise _misfit(layer, folder)
        across, down = (1, each) if self.method == "gptq" else (each, 1)
        inputs, outputs = codes.shape[0] * down, codes.shape[1] * across
        group = inputs if self.group == -1 else self.group
        fits = (
            inputs % group == 0
            and scales.shape == (inputs // group, outputs)
            and zeros.shape == (inputs // group, -(-outputs // each))
            and codes.dtype == zeros.dtype == "i32"
            and scales.codec is not None
        )
        if not fits:
            raise _misfit(layer, folder)
        numbers = tensors.get(f"{layer}.g_idx")
        order = None if numbers is None else _order(numbers, inputs, group, layer)
        if order is None and self.sorted and numbers is None and group != inputs:
            raise CheckpointError(
                f"{folder} lacks {layer}.g_idx, which desc_act needs", "Fetch the checkpoint again"
            )
        return PackedLinear(
            self.method,
            self.bits,
            group,
            codes,
            zeros,
            scales,
            (outputs, inputs),
            self.zero_shift,
            self.symmetric,
            order,
        )


def _misfit(layer: str, folder: Path) -> CheckpointError:
    return CheckpointError(
        f"{folder}: qweight, qzeros and scales of {layer} do not fit together",
        "The quantization_config is of another checkpoint, or this one is damaged",
    )


def _order(numbers: StoredTensor, inputs: int, group: int, layer: str) -> NDArray[Any] | None:
    """The inputs in the order of their groups; None if that is the order they have."""
    path = numbers.file.path
    if numbers.dtype != "i32" or numbers.shape != (inputs,):
        raise CheckpointError(
            f"{path}: {layer}.g_idx is not one group number for each of {inputs} inputs",
            "Fetch the checkpoint again",
        )
    groups = np.frombuffer(numbers.file.read(numbers.offset, inputs * 4), "<i4")
    order = np.argsort(groups, kind="stable")
    if not (groups[order] == np.arange(inputs) // group).all():
        raise CheckpointError(
            f"{path}: {layer}.g_idx has groups that are not of {group} inputs",
            "Fetch the checkpoint again",
        )
    return None if (order == np.arange(inputs)).all() else order.astype(np.int32)
