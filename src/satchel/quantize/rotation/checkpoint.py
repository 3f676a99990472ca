"""A checkpoint whose weights are rotated as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel.checkpoints.base import Checkpoint, TensorInfo
from satchel.errors import CheckpointError
from satchel.graph.ops.hadamard import transform
from satchel.quantize.affine import QuantizedWeight
from satchel.quantize.moments import InputMoments
from satchel.quantize.rotation.matrices import orthogonal
from satchel.quantize.rotation.plan import RotationPlan, TensorRotation

Array = NDArray[Any]

_HIDDEN_SEED, _HEAD_SEED = 20, 21


class RotatedCheckpoint(Checkpoint):
    """``base`` with its tensors as a plan changes them; the model computes what it computed.

    Rows that are mixed with others are computed all at once, and the latest tensor is kept, since
    it is read in blocks.
    """

    def __init__(self, base: Checkpoint, plan: RotationPlan) -> None:
        self.base, self.plan = base, plan
        self.format, self.path, self.config = base.format, base.path, base.config
        self.generation, self.tokenizer = base.generation, base.tokenizer
        self._hidden = orthogonal(plan.hidden, _HIDDEN_SEED)
        self._tensors = dict(base.tensors)
        for name, what in plan.tensors.items():
            source = what.source or name
            if source in base.tensors:
                self._tensors[name] = TensorInfo(base.tensors[source].shape, "f32")
        self._latest: tuple[str, Array] | None = None
        self._seen: tuple[InputMoments, object, InputMoments] | None = None

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        what = self.plan.tensors.get(name)
        if what is None:
            return self.base.read(name, rows)
        if not (what.hidden_rows or what.head_rows):
            return self._columns(name, what, self.base.read(what.source or name, rows))
        if self._latest is None or self._latest[0] != name:
            whole = self._columns(name, what, self.base.read(name))
            self._latest = name, self._rows(what, whole)
        return np.ascontiguousarray(self._latest[1][rows or slice(None)])

    def read_quantized(self, name: str, rows: slice | None = None) -> QuantizedWeight:
        raise CheckpointError(f"tensor {name} is rotated, so its codes cannot be kept")

    def close(self) -> None:
        self._latest = None
        self.base.close()

    def moments(self, tensor: str, seen: InputMoments | None) -> InputMoments | None:
        """What a tensor's layer sees of what it saw before the rotation."""
        what = self.plan.tensors.get(tensor)
        if seen is None or what is None:
            return seen
        if not (what.head_columns or what.hidden_columns or what.block_columns):
            return seen
        key = what.head_columns, what.block_columns, what.gain
        kept = self._seen
        if kept is None or kept[0] is not seen or kept[1] != key:
            rotated = seen.rotated(self._column_matrix(what, len(seen.mean)))
            # Layers with the same input come one after the other.
            self._seen = kept = seen, key, rotated
        return kept[2]

    def _column_matrix(self, what: TensorRotation, channels: int) -> Array:
        if what.head_columns:
            return np.kron(np.eye(channels // what.head_columns), _head(what.head_columns))
        if what.block_columns:
            return transform(np.eye(channels), what.block_columns)
        columns = self._hidden
        if what.gain is not None:
            gain = self._gain(what)
            # Of a channel without gain nothing was seen.
            columns = (
                np.divide(1.0, gain, out=np.zeros_like(gain), where=gain != 0)[:, None] * columns
            )
        return columns

    def _gain(self, what: TensorRotation) -> Array:
        assert what.gain is not None
        return self.base.read(what.gain.tensor).astype(np.float64) + what.gain.add

    def _columns(self, name: str, what: TensorRotation, w: Array) -> NDArray[np.float32]:
        if what.fixed is not None:
            return np.full_like(w, what.fixed)
        if what.gain is not None:
            w = w * self._gain(what).astype(np.float32)
        if what.hidden_columns:
            w = w @ self._hidden.astype(np.float32)
        if what.head_columns:
            turn = _head(what.head_columns).astype(np.float32)
            w = (w.reshape(len(w), -1, what.head_columns) @ turn).reshape(w.shape)
        if what.block_columns:
            w = transform(w, what.block_columns)
        return np.ascontiguousarray(w, np.float32)

    def _rows(self, what: TensorRotation, w: Array) -> Array:
        if what.hidden_rows:
            w = self._hidden.T.astype(np.float32) @ w
        if what.head_rows:
            first, last, size = what.head_rows
            turn = _head(size).T.astype(np.float32)
            heads = w[first:last].reshape(-1, size, int(np.prod(w.shape[1:])))
            w = w.copy()
            w[first:last] = (turn @ heads).reshape(last - first, *w.shape[1:])
        return w


@cache
def _head(size: int) -> Array:
    return orthogonal(size, _HEAD_SEED)
