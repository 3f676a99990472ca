"""Encodings of activations and the observers that choose them, against torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import RecipeError
from satchel.graph.builder import GraphBuilder
from satchel.graph.ir import Graph
from satchel.quantize.static import (
    ActivationEncoding,
    QdqInterpreter,
    calibrate,
    make_observer,
    quantize_rows,
)
from support.arrays import normal, uniform

numbers = st.floats(-1e4, 1e4, width=32)


@given(numbers, numbers, st.sampled_from([(8, False), (8, True), (16, False), (16, True)]))
def test_rounding_is_that_of_torch(a: float, b: float, kind: tuple[int, bool]) -> None:
    bits, signed = kind
    one = ActivationEncoding.of_range(min(a, b), max(a, b), bits, signed)
    x = uniform(300, low=min(a, b, 0) * 1.2, high=max(a, b, 0) * 1.2, seed=(a, b))
    fake = torch.fake_quantize_per_tensor_affine(
        torch.from_numpy(x), one.scale, one.zero_point, one.lowest, one.highest
    )
    difference = np.abs(one.round_trip(x) - fake.numpy())
    # torch may round a tie the other way: never further than one step, and hardly ever that.
    assert difference.max() <= one.scale * 1.001
    assert (difference > one.scale / 2).mean() < 0.02


@given(numbers, numbers)
def test_zero_has_a_code_and_the_ends_are_near(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    one = ActivationEncoding.of_range(low, high)
    assert float(one.round_trip(np.zeros(1))[0]) == 0
    assert one.low <= min(low, 0) + one.scale and one.high >= max(high, 0) - one.scale


def test_a_symmetric_range_has_its_zero_in_the_middle() -> None:
    one = ActivationEncoding.of_range(-1, 3, 8, signed=True, symmetric=True)
    assert one.zero_point == 0 and one.high == pytest.approx(3, rel=0.02)


def test_what_is_not_a_number_becomes_zero() -> None:
    one = ActivationEncoding.of_range(-1, 1)
    codes = one.quantize(np.array([np.nan, np.inf, -np.inf], np.float32))
    assert codes.tolist() == [one.zero_point, 255, 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0.1, 0, 4), "8 or 16 bits"),
        ((0.0, 0), "above 0"),
        ((float("nan"), 0), "above 0"),
        ((0.1, 256), "not a code"),
    ],
)
def test_impossible_encodings_are_refused(fields: tuple[float, ...], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        ActivationEncoding(*fields)  # type: ignore[arg-type]


def test_minmax_spans_all_that_was_seen() -> None:
    seen = make_observer("minmax")()
    for x in (uniform(9, low=-1, high=2), np.array([5.0])):
        seen.observe(x)
    assert seen.encoding().high == pytest.approx(5, rel=0.02)


@pytest.mark.parametrize("growing", [False, True])
def test_percentile_is_that_of_numpy(growing: bool) -> None:
    seen = make_observer("percentile:99")()
    parts = [normal(5000, seed=i, scale=1 + i * growing) for i in range(4)]
    for x in parts:
        seen.observe(x)
    low, high = seen.range(8, False)
    wanted = np.percentile(np.concatenate(parts), [0.5, 99.5])
    assert [low, high] == pytest.approx(wanted, abs=0.05)


def test_mse_beats_minmax_on_outliers() -> None:
    x = np.append(normal(20000), np.float32(40))
    errors = {}
    for name in ("minmax", "mse"):
        seen = make_observer(name)()
        seen.observe(x)
        errors[name] = float(((seen.encoding().round_trip(x) - x) ** 2).mean())
    assert errors["mse"] <= errors["minmax"]


def test_a_value_that_is_always_zero_can_be_encoded() -> None:
    for name in ("minmax", "percentile", "mse"):
        seen = make_observer(name)()
        seen.observe(np.zeros(3, np.float32))
        assert seen.encoding().round_trip(np.zeros(1)).tolist() == [0]


@pytest.mark.parametrize("name", ["best", "mse:1", "percentile:x", "percentile:101"])
def test_unknown_observers_are_refused(name: str) -> None:
    with pytest.raises(RecipeError):
        make_observer(name)


def _graph() -> Graph:
    b = GraphBuilder("forward")
    x = b.input("x", (3, 8))
    b.output(b.relu(b.linear(x, b.weight("w", (4, 8)))), "y")
    return b.finish()


def test_calibration_sees_inputs_and_results() -> None:
    w = normal(4, 8, seed="w")
    examples = [{"x": normal(3, 8, seed=i)} for i in range(3)]
    found = calibrate(_graph(), lambda _: w, examples)
    assert set(found) == {"x", "linear_0", "y"}
    results = np.maximum([e["x"] @ w.T for e in examples], 0)
    assert found["y"].high == pytest.approx(results.max(), rel=0.01) and found["y"].zero_point == 0


def test_the_rounded_run_is_torchs_fake_quantisation() -> None:
    w, x = normal(4, 8, seed="w"), normal(3, 8)
    graph = _graph()
    found = calibrate(graph, lambda _: w, [{"x": x}])
    got = QdqInterpreter(lambda _: w, found, frozenset({"w"})).run(graph, {"x": x})["y"]

    def fake(t: torch.Tensor, name: str) -> torch.Tensor:
        one = found[name]
        return torch.fake_quantize_per_tensor_affine(t, one.scale, one.zero_point, 0, 255)

    scales = torch.from_numpy(quantize_rows(w)[1])
    rounded = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(w), scales, torch.zeros(4, dtype=torch.int32), 0, -127, 127
    )
    want = fake(fake(fake(torch.from_numpy(x), "x") @ rounded.T, "linear_0").relu(), "y")
    assert np.abs(got - want.numpy()).max() <= found["y"].scale * 1.001


def test_examples_that_are_not_finite_are_named() -> None:
    x = normal(3, 8)
    x[1, 2] = np.nan
    with pytest.raises(RecipeError, match=r"nan in x at \[1, 2\]"):
        calibrate(_graph(), lambda _: normal(4, 8), [{"x": x}])


def test_no_examples_are_an_error() -> None:
    with pytest.raises(RecipeError, match="nothing to calibrate on"):
        calibrate(_graph(), lambda _: normal(4, 8), [])


def test_rows_are_rounded_to_half_a_step() -> None:
    w = normal(5, 7)
    codes, scales = quantize_rows(w)
    assert codes.dtype == np.int8
    assert (np.abs(codes * scales[:, None] - w) <= scales[:, None] / 2 * 1.001).all()
