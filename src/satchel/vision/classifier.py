"""A program that sorts images into classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from satchel import _native
from satchel.errors import ConfigError, ExecutionError, ProgramFormatError
from satchel.runtime.program import Program
from satchel.vision.preprocess import Preprocessing


@dataclass(frozen=True)
class Prediction:
    label: str
    index: int
    probability: float


def class_metadata(preprocessing: Preprocessing, classes: Sequence[str]) -> dict[str, Any]:
    """What an exporter puts into a program's metadata to make it a classifier."""
    return {"vision": {"preprocessing": preprocessing.to_dict(), "classes": list(classes)}}


class Classifier:
    """Runs images, or arrays that are already prepared, through a program.

    The program must have been exported with :func:`class_metadata`, as those of
    ``satchel export torchvision:NAME`` are.
    """

    def __init__(self, program: Program | str | os.PathLike[str], threads: int = 0) -> None:
        self.program = program if isinstance(program, Program) else Program(program)
        parts = self.program.metadata.get("vision")
        if not isinstance(parts, dict):
            raise ConfigError(
                f"{self.program.path} does not say how images become its input",
                "Give it arrays (.npy), or export it with preprocessing and classes.",
            )
        self.preprocessing = Preprocessing.from_dict(parts.get("preprocessing") or {})
        classes = parts.get("classes")
        if not isinstance(classes, list) or not all(isinstance(c, str) for c in classes):
            raise ProgramFormatError("the class names are damaged", "Export the program again.")
        self.classes: list[str] = classes
        instance = self.program.instance(threads)
        self.threads, self.kernels = instance.threads, instance.kernels
        self.emulated = instance.emulated
        self._method = instance.method("forward")

    def prepare(self, image: Any) -> NDArray[np.float32]:
        return self.preprocessing.prepare(image)

    def scores(self, image: Any) -> NDArray[np.float32]:
        """The program's output for a Pillow image, or an array ``[1, 3, height, width]``."""
        array = image if isinstance(image, np.ndarray) else self.prepare(image)
        (scores,) = self._method.run(array)
        if scores.ndim != 2 or len(scores) != 1:
            raise ExecutionError(f"the program gives {list(scores.shape)}, not one score a class")
        one: NDArray[np.float32] = scores[0]
        return one

    def classify(self, image: Any, top: int = 5) -> list[Prediction]:
        """The likeliest classes of a Pillow image, or of an array ``[1, 3, height, width]``."""
        return top_classes(self.scores(image), self.classes, top)


def top_classes(
    scores: NDArray[np.float32], classes: Sequence[str], top: int = 5
) -> list[Prediction]:
    """Softmax, and the likeliest first.

    >>> [p.label for p in top_classes(np.array([0.0, 2.0, 1.0]), ["a", "b", "c"], 2)]
    ['b', 'c']
    """
    found = _native.top_classes(np.ascontiguousarray(scores, np.float32), top)
    return [Prediction(classes[i] if i < len(classes) else f"class {i}", i, p) for i, p in found]
