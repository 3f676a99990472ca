"""Detectors' operators on boxes: what of an image's features lies in each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from satchel.graph.ir import DType, Value
from satchel.torch.lowering import Lowering
from satchel.torch.operators.registry import OperatorError, of_namespace


@dataclass(frozen=True)
class Pooling:
    """How a box becomes a grid: each cell is the mean of samples × samples points in it."""

    height: int
    width: int
    scale: float  # from the boxes' coordinates to the features'
    samples: int
    aligned: bool  # whether a pixel's number means its middle, and boxes may be small

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise OperatorError("as many samples as a box is large")


def pool_boxes(low: Lowering, features: Value, boxes: Value, images: Value, how: Pooling) -> Value:
    """[r, c, height, width] of features [n, c, h, w] in boxes [r, 4], of which images says whose.

    Points between pixels are interpolated along each axis, and a mean of points is one of rows and
    one of columns: two products with matrices.
    """
    count, _, height, width = (low.known(d, "a box") for d in features.shape)
    rows = _shares(low, boxes, 1, how.height, height, how)
    columns = _shares(low, boxes, 0, how.width, width, how)
    own = features if count == 1 else low.emit("take", features, low.index(images), axis=0)
    boxes_first = low.reshape(rows, (rows.shape[0], 1, how.height, height))
    across = low.reshape(columns, (columns.shape[0], 1, how.width, width))
    pooled = low.matmul(boxes_first, own)
    return low.matmul(pooled, low.transpose(across, (0, 1, 3, 2)))


def _shares(low: Lowering, boxes: Value, axis: int, cells: int, size: int, how: Pooling) -> Value:
    """How much each of the features' rows (or columns) is part of each cell, [r, cells, size]."""
    shift = -0.5 if how.aligned else 0.0
    ends = (low.slice(boxes, 1, axis + at, axis + at + 1) for at in (0, 2))
    start, end = (low.affine(low.floats(e), scale=how.scale, shift=shift) for e in ends)
    length = low.sub(end, start)
    if not how.aligned:
        length = low.maximum(length, low.number(1.0))
    within = (np.arange(cells * how.samples, dtype=np.float32) + 0.5) / (cells * how.samples)
    points = low.add(start, low.mul(length, low.constant(within[None], "within")))
    above = low.compare(points, low.number(-1.0), kind="ge")
    below = low.compare(points, low.number(float(size)), kind="le")
    inside = low.mul(low.cast(above, DType.f32), low.cast(below, DType.f32))
    nearest = low.clamp(points, low=0.0, high=float(size - 1))
    count = points.shape[0]
    each = low.reshape(nearest, (count, cells * how.samples, 1))
    away = low.abs(low.sub(each, low.constant(np.arange(size, dtype=np.float32), "pixels")))
    shares = low.relu(low.affine(away, scale=-1.0, shift=1.0))
    shares = low.mul(shares, low.reshape(inside, (count, cells * how.samples, 1)))
    split = low.reshape(shares, (count, cells, how.samples, size))
    return low.reduce_mean(split, axes=(2,), keepdims=0)


@of_namespace("torchvision")("roi_align")
def roi_align(
    low: Lowering,
    features: Value,
    boxes: Value,
    scale: float,
    height: int,
    width: int,
    samples: int,
    aligned: bool,
) -> Value:
    """The first number of each box is its image's."""
    images = low.reshape(low.slice(boxes, 1, 0, 1), boxes.shape[:1])
    how = Pooling(height, width, scale, samples, aligned)
    whose = low.cast(images, DType.i32)
    return pool_boxes(low, features, low.slice(boxes, 1, 1, 5), whose, how)
