"""Detectors' operators: boxes that do not overlap, and what of the features lies in a box."""

from __future__ import annotations

import numpy as np

from satchel.graph.ir import DType, Sym, Value
from satchel.onnx.operators.registry import Call, known_array, onnx_operator
from satchel.torch.lowering import Lowering
from satchel.torch.operator_error import OperatorError
from satchel.torch.operators.boxes import Pooling, pool_boxes
from satchel.torch.operators.choose import chosen_places


@onnx_operator("NonMaxSuppression")
def non_max_suppression(
    low: Lowering,
    call: Call,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    overlap: Value | None = None,
    least: Value | None = None,
) -> Value:
    """Rows of image, class and box, the best of each class first; how many, only a run tells."""
    images, classes, count = (low.known(d, "NonMaxSuppression") for d in scores.shape)
    kept_of_each = int(known_array(most, "a number of boxes").reshape(-1)[0]) if most else 0
    threshold = float(known_array(overlap, "an overlap").reshape(-1)[0]) if overlap else 0.0
    corners = _corners(low, boxes, call.get("center_point_box", 0))
    masks, orders = [], []
    for image in range(images):
        own = low.reshape(low.slice(corners, 0, image, image + 1), (count, 4))
        of_image = low.reshape(low.slice(scores, 0, image, image + 1), (classes, count))
        for kind in range(classes):
            score = low.reshape(low.slice(of_image, 0, kind, kind + 1), (count,))
            order = low.argsort(score, axis=0, descending=1)
            keeps = low.emit("nms", low.emit("take", own, order, axis=0), threshold=threshold)
            if least is not None:
                # The best come first, so that what is left out here has hidden nothing before it.
                bound = low.reshape(low.floats(least), ())
                best_first = low.emit("take", score, order, axis=0)
                keeps = _both(low, keeps, low.compare(best_first, bound, kind="gt"))
            if kept_of_each < count:
                place = low.cumulate(low.cast(keeps, DType.i32), axis=0, kind="sum")
                limit = low.number(kept_of_each, DType.i32)
                keeps = _both(low, keeps, low.compare(place, limit, kind="le"))
            masks.append(keeps)
            orders.append(order)
    total = images * classes * count
    size = Sym(f"chosen_{len(low.chosen)}", total)
    places = chosen_places(low, low.concat(masks, 0), size)
    each = np.arange(total) // count
    columns = [
        low.constant((each // classes).astype(np.int32), "image"),
        low.constant((each % classes).astype(np.int32), "class"),
        low.concat(orders, 0),
    ]
    chosen = [low.emit("take", column, places, axis=0) for column in columns]
    return low.cast(low.concat([low.reshape(c, (size, 1)) for c in chosen], 1), DType.i64)


def _both(low: Lowering, one: Value, other: Value) -> Value:
    product = low.mul(low.cast(one, DType.i32), low.cast(other, DType.i32))
    return low.cast(product, DType.boolean)


def _corners(low: Lowering, boxes: Value, centred: int) -> Value:
    """Boxes by two corners, the lower numbers first, which may have been given either way."""
    first, second = low.slice(boxes, 2, 0, 2), low.slice(boxes, 2, 2, 4)
    if centred:
        half = low.affine(second, scale=0.5)
        first, second = low.sub(first, half), low.add(first, half)
    return low.concat([low.minimum(first, second), low.maximum(first, second)], 2)


@onnx_operator("RoiAlign")
def roi_align(low: Lowering, call: Call, features: Value, boxes: Value, images: Value) -> Value:
    if call.get("mode", "avg") != "avg":
        raise OperatorError("the greatest of a cell's samples")
    usual = "half_pixel" if call.version >= 16 else "output_half_pixel"
    how = Pooling(
        call.get("output_height", 1),
        call.get("output_width", 1),
        call.get("spatial_scale", 1.0),
        call.get("sampling_ratio", 0),
        call.get("coordinate_transformation_mode", usual) == "half_pixel",
    )
    return pool_boxes(low, features, boxes, images, how)
