"""Checks of a checkpoint against its model, all made before the first weight is read."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from satchel.checkpoints.base import Checkpoint
from satchel.errors import CheckpointError
from satchel.graph.ir import Weight

_SHOWN = 5


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# Fields that say how many layers there are, and those that some tensor is at least as large as.
_LAYERS = ("num_hidden_layers", "n_layer")
_SIZES = """head_dim hidden_size intermediate_size moe_intermediate_size n_embd n_head n_inner
    num_attention_heads num_experts num_key_value_heads num_local_experts rotary_dim
    vocab_size""".split()


def check_sizes(checkpoint: Checkpoint) -> None:
    """The configuration's numbers are none that these tensors cannot have.

    Graphs are built from them before tensors are compared one by one, which takes time and memory
    in proportion: a configuration must not be able to ask for a billion layers.
    """
    shapes = [tensor.shape for tensor in checkpoint.tensors.values()]
    largest = max((max(shape, default=1) for shape in shapes), default=0)
    limits = dict.fromkeys(_LAYERS, len(shapes)) | dict.fromkeys(_SIZES, largest)
    for field, limit in limits.items():
        value = checkpoint.config.get(field)
        if isinstance(value, int) and value > limit:
            held = f"only {limit} tensors" if field in _LAYERS else f"no tensor larger than {limit}"
            number = value if value < 1 << 53 else "absurdly large"
            raise CheckpointError(
                f"the configuration's {field} is {number}, and {checkpoint.path} has {held}",
                "The configuration is of another model, or the checkpoint is incomplete.",
            )


def check_tensors(checkpoint: Checkpoint, weights: Iterable[Weight], unused: Sequence[str]) -> None:
    """Every weight has its tensor, of the right shape, and no tensor is left over."""
    tensors = checkpoint.tensors
    needed: dict[str, list[Weight]] = {}
    for weight in weights:
        needed.setdefault(weight.source.tensor, []).append(weight)
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise CheckpointError(
            f"{checkpoint.path} lacks {_some(missing)}",
            "The checkpoint is incomplete, or its configuration is of another model.",
        )
    for name, users in needed.items():
        shape, wanted = tensors[name].shape, _tensor_shape(users)
        if shape != wanted:
            raise CheckpointError(
                f"{name} has the shape {list(shape)}, and the configuration asks for "
                f"{list(wanted)}",
                "The configuration is of another model, or the checkpoint is damaged.",
            )
    extra = [
        n for n in tensors if n not in needed and not any(fnmatch.fnmatch(n, p) for p in unused)
    ]
    if extra:
        raise CheckpointError(
            f"{checkpoint.path} has tensors that the model does not use: {_some(extra)}",
            "Leaving them out could change the results silently.",
        )


def _tensor_shape(users: Sequence[Weight]) -> tuple[int, ...]:
    """The shape of a tensor that these weights are, or of which each takes some rows."""
    ranges = [r for weight in users for r in weight.source.ranges or ()]
    rows = max((last for _, last in ranges), default=users[0].shape[0])
    return (rows, *users[0].shape[1:])


def is_folder(named: str | os.PathLike[str]) -> bool:
    """Whether an output that someone named is a folder, there or (``FOLDER/``) to be made."""
    return os.fspath(named).endswith(("/", os.sep)) or Path(named).is_dir()
