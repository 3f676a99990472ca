"""satchel run on a program that is no language model: images, arrays, numbers."""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from satchel.cli.arguments import threads
from satchel.cli.output import emit, print_json, say
from satchel.cli.programs import tell_emulated
from satchel.cli.repeat import each_run, is_repeated
from satchel.errors import InputError
from satchel.runtime.program import Program

Array = NDArray[Any]
Result = TypeVar("Result")
NUMPY_MAGIC = b"\x93NUMPY"


def run_arrays(program: Program, arguments: argparse.Namespace) -> None:
    """Classify each input, or print what the program makes of it."""
    from satchel.vision.classifier import Classifier

    if "vision" in program.metadata:
        _classify(Classifier(program, threads(arguments)), arguments)
    else:
        _compute(program, arguments)


def _inputs(arguments: argparse.Namespace) -> Iterator[tuple[str, bytes | Path]]:
    """(name, what it is) of each file; folders are opened, and - is standard input."""
    from satchel.vision.images import image_paths

    for name in arguments.input:
        path = Path(name)
        if name == "-":
            yield "standard input", sys.stdin.buffer.read()
        elif path.is_dir():
            found = sorted({*image_paths(path), *path.rglob("*.npy")})
            if not found:
                raise InputError(f"{name} has no images and no .npy files in it")
            yield from ((str(p), p) for p in found)
        elif path.is_file():
            yield name, path
        else:
            raise InputError(f"{name} does not exist", "Give an image, a .npy file or a folder.")


def _read_array(name: str, source: bytes | Path) -> Array | None:
    """The array of a .npy file or of a text file of numbers; None for anything else."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    try:
        if data.startswith(NUMPY_MAGIC):
            array: Array = np.load(io.BytesIO(data), allow_pickle=False)
            return array
        if isinstance(source, Path) and source.suffix in (".txt", ".csv"):
            text = data.decode().replace(",", " ")
            return np.array([float(word) for word in text.split()], np.float32)
    except (ValueError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{name} does not hold an array: {error}") from None
    return None


def _classify(classifier: Any, arguments: argparse.Namespace) -> None:
    from satchel.vision.annotate import annotate
    from satchel.vision.classifier import top_classes

    tell_emulated(classifier.emulated)
    inputs = list(_inputs(arguments))
    if arguments.annotate and len(inputs) != 1:
        raise InputError(f"--annotate draws on one image, and there are {len(inputs)}")
    results: list[dict[str, Any]] = []
    scores: dict[str, Array] = {}
    for name, source in inputs:
        try:
            image = _prepared(name, source, classifier)
        except InputError as error:
            if len(inputs) == 1:
                raise
            # The others are still worth an answer.
            results.append({"input": name, "error": error.message})
            say(f"{name}: {error.message}")
            continue
        scores[name], seconds = repeated(partial(classifier.scores, image), arguments)
        found = top_classes(scores[name], classifier.classes, arguments.top)
        if arguments.annotate:
            if isinstance(image, np.ndarray):
                raise InputError(f"{name} is an array, and --annotate draws on images")
            annotate(image, found, Path(arguments.annotate))
        classes = [
            {"label": p.label, "index": p.index, "probability": p.probability} for p in found
        ]
        results.append({"input": name, "classes": classes, **seconds})
        if not arguments.json:
            if len(inputs) > 1:
                emit(name)
            for one in found:
                emit(f"{one.probability:7.2%}  {one.label}")
            _tell_seconds(seconds)
    if not scores:
        raise InputError(f"none of {len(inputs)} inputs can be read")
    if arguments.output:
        rows = np.stack(list(scores.values()))
        np.savez(arguments.output, inputs=np.array(list(scores)), output=rows)
    if arguments.json:
        document = {"threads": classifier.threads, "kernels": classifier.kernels}
        print_json({"results": results, **document})


def _prepared(name: str, source: bytes | Path, classifier: Any) -> Any:
    """An image, or an array of the input's shape."""
    from satchel.vision.images import open_image

    array = _read_array(name, source)
    if array is None:
        return open_image(source, name)
    return _fitting(name, array, (1, 3, *classifier.preprocessing.crop))


def _fitting(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} holds {array.dtype}, and the program takes numbers")
    if array.shape == shape[1:] or (array.ndim == 1 and array.size == np.prod(shape)):
        array = array.reshape(shape)
    if array.shape != shape:
        raise InputError(
            f"{name} has the shape {list(array.shape)}, and the program takes {list(shape)}",
            "An array must be resized and normalised already.",
        )
    return array.astype(np.float32)


def _compute(program: Program, arguments: argparse.Namespace) -> None:
    if program.about.kind == "speech":
        raise InputError(
            f"{program.path} hears, and takes no arrays",
            "Give it sound: satchel transcribe FILE AUDIO.",
        )
    instance = program.instance(threads(arguments))
    tell_emulated(instance.emulated)
    method = instance.method("forward")
    arrays = []
    for name, source in _inputs(arguments):
        array = _read_array(name, source)
        if array is None:
            raise InputError(
                f"{name} is not an array, and {program.path} does not say how images become its "
                "input",
                "Give a .npy file.",
            )
        arrays.append(array)
    inputs = _matched(method.info["inputs"], arrays)
    results, seconds = repeated(lambda: method.run(*inputs), arguments)
    if arguments.output:
        named: dict[str, Any] = dict(zip(method.outputs, results, strict=True))
        np.savez(arguments.output, **named)
    shown = [
        {
            "name": name,
            "shape": list(a.shape),
            "dtype": a.dtype.name,
            "first": [x.item() for x in a.reshape(-1)[:8]],
        }
        for name, a in zip(method.outputs, results, strict=True)
    ]
    if arguments.json:
        document = {"threads": instance.threads, "kernels": instance.kernels}
        print_json({"results": [{**one, **seconds} for one in shown], **document})
        return
    for one, array in zip(shown, results, strict=True):
        emit(f"{one['name']}: {one['dtype']}{one['shape']}")
        emit(np.array2string(array, threshold=64, precision=5))
    _tell_seconds(seconds)


def repeated(
    work: Callable[[], Result], arguments: argparse.Namespace
) -> tuple[Result, dict[str, float]]:
    """The result of --iterations runs, and how long one takes: the seconds' median and mean."""
    if not is_repeated(arguments):
        return work(), {}
    times = []
    for counts in each_run(arguments, lambda _: None):
        started = time.perf_counter()
        result = work()
        if counts:
            times.append(time.perf_counter() - started)
    return result, {"median_s": statistics.median(times), "mean_s": statistics.fmean(times)}


def _tell_seconds(seconds: dict[str, float]) -> None:
    if seconds:
        emit(f"median {seconds['median_s'] * 1e3:.2f} ms, mean {seconds['mean_s'] * 1e3:.2f} ms")


def _matched(inputs: list[dict[str, Any]], arrays: list[Array]) -> list[Array]:
    """Numbers of a text file take the shape of the input that they are for."""
    for place, value in enumerate(inputs[: len(arrays)]):
        shape = [d for d in value["shape"] if isinstance(d, int)]
        known = len(shape) == len(value["shape"])
        if known and arrays[place].ndim == 1 and arrays[place].size == np.prod(shape):
            arrays[place] = arrays[place].reshape(shape)
    return arrays
