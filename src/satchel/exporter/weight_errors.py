"""How far stored weights are from the checkpoint's, by kind of layer and by layer."""

from __future__ import annotations

from collections.abc import Mapping

from satchel.exporter.weights import WeightError


def kind_of(name: str) -> str:
    """The kind of layer that a weight belongs to: the layers' numbers become a star.

    >>> kind_of("model.layers.3.mlp.up_proj.weight")
    'model.layers.*.mlp.up_proj.weight'
    """
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def error_by_kind(errors: Mapping[str, WeightError]) -> dict[str, float]:
    """Relative error by kind of layer."""
    kinds: dict[str, WeightError] = {}
    for name, error in errors.items():
        total = kinds.setdefault(kind_of(name), WeightError())
        total.squared_error += error.squared_error
        total.squared_weight += error.squared_weight
        total.count += error.count
    return {kind: round(total.relative, 6) for kind, total in kinds.items()}


def error_by_layer(errors: Mapping[str, WeightError]) -> dict[str, list[float]]:
    """Relative error of each layer in order, for the kinds that have layers and lost something."""
    layers: dict[str, dict[int, float]] = {}
    for name, error in errors.items():
        numbers = [int(part) for part in name.split(".") if part.isdigit()]
        if len(numbers) == 1:
            layers.setdefault(kind_of(name), {})[numbers[0]] = round(error.relative, 6)
    return {
        kind: [found[number] for number in sorted(found)]
        for kind, found in layers.items()
        if any(found.values())
    }
