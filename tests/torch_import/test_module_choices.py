"""Results whose number only a run tells, and sizes that are made of two symbolic ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import satchel
from satchel.errors import ExecutionError


class Masked(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        mask = x > 0
        picked = torch.masked_select(x, x[:1] > 0.5)
        return x[mask], mask.nonzero(), picked, x[x.sum(1) > 0], x[:, x.sum(0) > 0]


class Put(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        rows, columns = torch.where(x > 0)
        y, z = x.clone(), x.clone()
        y[rows, columns] = 7.0
        z[x < 0] = (x * 2)[x < 0]
        return x[rows, columns] * 2 + 1, y, z, x[rows].sum(0), rows.shape[0]


class Detections(nn.Module):
    """What is sure enough, the best first, joined with fixed ones and with one another."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        boxes, scores = x[x[:, 4] > 0.3, :4], x[x[:, 4] > 0.3, 4]
        order = scores.argsort(descending=True)
        others = x[x[:, 4] < -0.3, :4]
        return {
            "boxes": boxes[order],
            "scores": scores[order],
            "width": (boxes[:, 2] - boxes[:, 0]).sum(),
            "padded": torch.cat([boxes, torch.zeros(2, 4)]),
            "both": torch.cat([boxes, others]) * 2,
        }


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        chosen = x[x.sum(-1) > 0]
        return torch.softmax(self.linear(chosen), -1), chosen.mean(0)


class OwnKind(nn.Module):
    """Of each chosen row, the entry that another column names, as a detector's masks are."""

    def forward(self, x: torch.Tensor) -> Any:
        rows = x[x[:, 0] > 0]
        kinds = (rows[:, 1].abs() * 2).long().clamp(max=4)
        return rows[torch.arange(rows.shape[0]), kinds], rows[torch.arange(rows.shape[0]), -kinds]


CASES = [(Masked, (3, 4)), (Put, (3, 4)), (Detections, (12, 5)), (Layers, (2, 3, 4))]
CASES += [(OwnKind, (9, 5))]


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_what_a_mask_chooses(kind: type[nn.Module], shape: tuple[int, ...], tmp_path: Path) -> None:
    """Some, then others in another number, then none at all, then some again."""
    torch.manual_seed(0)
    module = kind().eval()
    x = torch.randn(shape)
    method = satchel.load(satchel.export(module, (x,), tmp_path / "m.satchel")).method()
    for given in (x, torch.randn(shape), -torch.rand(shape) * 0.2, torch.ones(shape), x):
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(given))
        for mine, theirs in zip(method.run(given.numpy()), wanted, strict=True):
            expected = np.asarray(theirs)
            assert mine.shape == expected.shape
            np.testing.assert_allclose(mine, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("count", [0, 2, 3, 9])
def test_the_first_of_what_is_chosen(count: int, tmp_path: Path) -> None:
    class Best(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            kept = x[x > 0]
            return kept[:3] * 2, (x + 1)[x > 0][:3], kept[:5].sum()

    x = torch.linspace(1, 2, 9) * torch.where(torch.arange(9) < count, 1.0, -1.0)
    method = satchel.load(satchel.export(Best().eval(), (x,), tmp_path / "m.satchel")).method()
    for mine, theirs in zip(method.run(x.numpy()), Best()(x), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), 1e-6)


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_a_mask_that_is_known_chooses_as_many_as_are_known(kept: int, tmp_path: Path) -> None:
    class Known(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.arange(4) < kept)

        def forward(self, x: torch.Tensor) -> Any:
            chosen = x[self.mask]
            y = x.clone()
            y[self.mask] = chosen * 2
            return y, torch.cat([chosen, x]).sum(0), self.mask.nonzero().sum() + x.sum()

    module, x = Known().eval(), torch.randn(4, 3)
    method = satchel.load(satchel.export(module, (x,), tmp_path / "m.satchel")).method()
    for mine, theirs in zip(method.run(x.numpy()), module(x), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), 1e-5, 1e-6)


class AskedTwice(nn.Module):
    """Rows that the same mask chooses, in two layers, of which torch knows two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        first = self.one(x[mask])
        second = self.two(x[mask])
        return second[: first.shape[0]], x @ second.T @ first, (x @ second.T)[:, :1].sum()


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_a_mask_that_is_asked_twice_is_of_one_size(count: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x, mask = AskedTwice().eval(), torch.randn(5, 4), torch.arange(5) > 2
    method = satchel.load(satchel.export(module, (x, mask), tmp_path / "m.satchel")).method()
    mask = torch.arange(5) < count
    for mine, theirs in zip(method.run(x.numpy(), mask.numpy()), module(x, mask), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), 1e-5, 1e-5)


def test_of_nothing_there_is_no_greatest(tmp_path: Path) -> None:
    class Greatest(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0].max()

    x = torch.tensor([1.0, -2.0, 3.0])
    method = satchel.load(satchel.export(Greatest().eval(), (x,), tmp_path / "m.satchel")).method()
    with pytest.raises(ExecutionError, match="nothing was chosen"):
        method(-np.ones(3, np.float32))
    assert method(x.numpy()) == 3  # and the next call is none the worse


def _keep_by_hand(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """torchvision's operator, where its own is not built for this torch."""
    order = scores.argsort(descending=True, stable=True).tolist()
    kept: list[int] = []
    for number in order:
        box = boxes[number]
        for other in boxes[kept]:
            sides = torch.minimum(box[2:], other[2:]) - torch.maximum(box[:2], other[:2])
            both = sides.clamp(min=0).prod()
            areas = [(b[2:] - b[:2]).prod() for b in (box, other)]
            if both / (areas[0] + areas[1] - both) > iou_threshold:
                break
        else:
            kept.append(number)
    return torch.tensor(kept, dtype=torch.int64)


@pytest.fixture
def nms() -> Any:
    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "nms"):
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    operator = torch.ops.torchvision.nms
    if not torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "CPU"):
        library.impl("nms", _keep_by_hand, "CPU")
    if not torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "Meta"):

        def fake(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
            count = torch.library.get_ctx().new_dynamic_size()
            return dets.new_empty(count, dtype=torch.int64)

        torch.library.register_fake("torchvision::nms", fake, lib=library)
    yield operator
    library._destroy()


def test_boxes_that_overlap(nms: Any, tmp_path: Path) -> None:
    class Kept(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            boxes = torch.cat([x[:, :2], x[:, :2] + x[:, 2:4].abs()], 1)
            boxes, scores = boxes[x[:, 4] > 0], x[x[:, 4] > 0, 4]
            keep = nms(boxes, scores, 0.3)
            return boxes[keep], keep

    module = Kept().eval()
    x = torch.randn(40, 5)
    method = satchel.load(satchel.export(module, (x,), tmp_path / "m.satchel")).method()
    for given in (x, torch.randn(40, 5), -torch.rand(40, 5)):
        for mine, theirs in zip(method.run(given.numpy()), module(given), strict=True):
            assert mine.shape == tuple(theirs.shape)
            np.testing.assert_array_equal(mine, theirs.numpy())


def _mean_of_points(
    x: torch.Tensor, rois: torch.Tensor, scale: float, high: int, wide: int, n: int, aligned: bool
) -> torch.Tensor:
    """torchvision's operator, point by point."""
    made = torch.zeros(len(rois), x.shape[1], high, wide)
    for r, (image, *corners) in enumerate(rois.tolist()):
        x0, y0, x1, y1 = (c * scale - 0.5 * aligned for c in corners)
        tall, broad = (y1 - y0, x1 - x0) if aligned else (max(y1 - y0, 1.0), max(x1 - x0, 1.0))
        for i, j in np.ndindex(high * n, wide * n):
            y, x_ = y0 + (i + 0.5) * tall / (high * n), x0 + (j + 0.5) * broad / (wide * n)
            if not (-1 <= y <= x.shape[2] and -1 <= x_ <= x.shape[3]):
                continue
            y, x_ = min(max(y, 0.0), x.shape[2] - 1.0), min(max(x_, 0.0), x.shape[3] - 1.0)
            for a, b in np.ndindex(2, 2):
                row, column = int(y) + a, int(x_) + b
                share = (1 - abs(y - row)) * (1 - abs(x_ - column))
                if share > 0:
                    made[r, :, i // n, j // n] += share * x[int(image), :, row, column] / n**2
    return made


@pytest.mark.parametrize("aligned", [False, True])
def test_features_within_boxes(aligned: bool, tmp_path: Path) -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "roi_align"):
        library.define(
            "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
            "int pooled_width, int sampling_ratio, bool aligned) -> Tensor"
        )
        library.impl("roi_align", _mean_of_points, "CPU")

        def fake(x: torch.Tensor, rois: torch.Tensor, *rest: Any) -> torch.Tensor:
            return x.new_empty(rois.shape[0], x.shape[1], rest[1], rest[2])

        torch.library.register_fake("torchvision::roi_align", fake, lib=library)

    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor, rois: torch.Tensor) -> Any:
            pool = torch.ops.torchvision.roi_align
            return pool(x, rois, 0.5, 2, 3, 2, aligned), pool(
                x[:1], rois[:1], 1.0, 1, 2, 3, aligned
            )

    x = torch.randn(2, 3, 6, 7)
    rois = torch.tensor(
        [[0, 1.0, 2.0, 9.0, 8.5], [1, -4.0, -3.0, 20.0, 3.0], [0, 5.0, 5.0, 5.2, 6]]
    )
    method = satchel.load(
        satchel.export(Pooled().eval(), (x, rois), tmp_path / "m.satchel")
    ).method()
    both = [_mean_of_points(x, rois, 0.5, 2, 3, 2, aligned)]
    both.append(_mean_of_points(x[:1], rois[:1], 1.0, 1, 2, 3, aligned))
    for mine, theirs in zip(method.run(x.numpy(), rois.numpy()), both, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), 1e-4, 1e-5)
    library._destroy()


class Flat(nn.Module):
    """Batch and length are one dimension for a while."""

    def forward(self, x: torch.Tensor) -> Any:
        batch, length, _ = x.shape
        flat = x.reshape(batch * length, 4)
        numbered = flat + torch.arange(batch * length)[:, None]
        both = torch.cat([x[:, 0], x[0]])
        return numbered.reshape(batch, length, 4), flat.softmax(-1), both


def test_products_and_sums_of_two_sizes(tmp_path: Path) -> None:
    sizes = {0: torch.export.Dim("batch", max=6), 1: torch.export.Dim("length", max=9)}
    x = torch.randn(3, 5, 4)
    path = satchel.export(Flat().eval(), (x,), tmp_path / "m.satchel", dynamic_shapes=(sizes,))
    method = satchel.load(path).method()
    for shape in ((3, 5, 4), (6, 9, 4), (2, 3, 4), (4, 2, 4)):
        x = torch.randn(shape)
        for mine, theirs in zip(method.run(x.numpy()), Flat()(x), strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), 1e-5, 1e-5)


def test_attention_of_any_batch_and_length(tmp_path: Path) -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
            return made

    torch.manual_seed(0)
    module = Attends().eval()
    sizes = {0: torch.export.Dim("batch", max=6), 1: torch.export.Dim("length", max=9)}
    path = satchel.export(
        module, (torch.randn(3, 5, 16),), tmp_path / "m.satchel", dynamic_shapes=(sizes,)
    )
    method = satchel.load(path).method()
    for shape in ((3, 5, 16), (6, 9, 16), (2, 4, 16)):
        x = torch.randn(shape)
        with torch.no_grad():
            wanted = module(x).numpy()
        np.testing.assert_allclose(method(x.numpy()), wanted, 1e-4, 1e-5)


class Best(nn.Module):
    """The three best of those that there are, or all of them."""

    def forward(self, x: torch.Tensor) -> Any:
        kept = x[x > 0]
        best, places = kept.topk(torch.sym_min(kept.shape[0], 3))
        (whole,) = best.split([best.shape[0]])
        return whole * 2, places, kept[:2]


def test_the_best_of_as_many_as_there_are(tmp_path: Path) -> None:
    x = torch.tensor([0.5, -1.0, 2.0, 0.25, -3.0, 4.0])
    method = satchel.load(
        satchel.export(Best().eval(), (x,), tmp_path / "m.satchel", overwrite=True)
    ).method()
    for given in (x, -x, x - 1.9, x - 9):
        wanted = Best()(given)
        for mine, theirs in zip(method.run(given.numpy()), wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs.numpy())


class Found(nn.Module):
    """Rows that a layer's own numbers choose."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> Any:
        rows = self.last(torch.relu(self.first(x)))
        return rows[rows[:, 0] > 0]


def test_the_noise_of_results_that_a_run_counts(tmp_path: Path) -> None:
    """Other rows may be chosen in 8 bits: the layer that they come from tells the ratio."""
    torch.manual_seed(0)
    x = torch.randn(40, 8)
    path = satchel.export(
        Found().eval(), (x,), tmp_path / "m.satchel", recipe="int8", calibration=[(x,)]
    )
    facts = satchel.load(path).metadata
    assert facts["output_snr_db"] == facts["layer_snr_db"]["last.weight"]
    assert 20 < facts["output_snr_db"] < 60


def test_layers_that_no_example_reaches_stay_in_floats(tmp_path: Path) -> None:
    """Nothing is known of their numbers: a range would be a guess."""

    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 16), nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> Any:
            return self.first(x), self.last(x[x[:, 0] > 1])

    torch.manual_seed(0)
    module, x = Chosen().eval(), torch.rand(40, 8)
    path = satchel.export(module, (x,), tmp_path / "m.satchel", recipe="int8", calibration=[(x,)])
    program = satchel.load(path)
    assert program.metadata["kept_in_float"] == ["last.weight (its input has no range)"]
    _, made = program.method().run((x * 3).numpy())
    np.testing.assert_allclose(made, module(x * 3)[1].detach().numpy(), 1e-5, 1e-5)


class Looked(nn.Module):
    """Rows of a layer's result by numbers that are computed, as an optical flow looks them up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor, where: torch.Tensor) -> Any:
        rows = torch.relu(self.first(x))
        return self.last(rows[(where * 3 + 1) % x.shape[0]])


def test_codes_are_looked_up_by_computed_numbers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Looked().eval()
    x, where = torch.randn(40, 8), torch.randint(0, 90, (12,))
    path = satchel.export(
        module, (x, where), tmp_path / "m.satchel", recipe="int8", calibration=[(x, where)]
    )
    made = satchel.load(path).method()(x.numpy(), where.numpy())
    wanted = module(x, where).detach().numpy()
    assert np.abs(made - wanted).max() < 0.05 * np.abs(wanted).max()


class ManyKinds(nn.Module):
    """As many counts as there are kinds, behind each other, as SSD's boxes are."""

    def forward(self, scores: torch.Tensor) -> Any:
        kept, kinds = [], []
        for kind in range(scores.shape[1]):
            column = scores[:, kind]
            column = column[column > 0.5]
            best, _ = column.topk(torch.sym_min(column.shape[0], 3))
            kept.append(best)
            kinds.append(torch.full_like(best, kind, dtype=torch.int64))
        found = torch.cat(kept)
        return found, torch.cat(kinds)[found.argsort(descending=True, stable=True)]


def test_a_sum_of_many_counts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.rand(7, 70)
    method = satchel.load(satchel.export(ManyKinds().eval(), (x,), tmp_path / "m.satchel")).method()
    for given in (x, x * 0.6, x * 0):
        for mine, theirs in zip(method.run(given.numpy()), ManyKinds()(given), strict=True):
            np.testing.assert_array_equal(mine, theirs.numpy())
