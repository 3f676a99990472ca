"""Satchel and ONNX Runtime on encoders and detectors, in turns in one process.

    python benchmarks/modules_side_by_side.py --rounds 5 --threads 2
    python benchmarks/modules_side_by_side.py bert distilbert --precisions int8
    python benchmarks/modules_side_by_side.py bert --tiny --rounds 1     # whether it works
    python benchmarks/modules_side_by_side.py --keep files --prepare     # exports alone; then
    python benchmarks/modules_side_by_side.py --keep files               # measures what is there

Weights are random, of the published sizes; needs ``satchel[transformers,onnx]`` and onnxruntime.
ONNX Runtime gets torch's ONNX file, in int8 as its documentation advises: transformers with
activations rounded as they come, networks of convolutions with calibrated ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import satchel

TINY = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
TINY |= {"intermediate_size": 128, "vocab_size": 200, "n_layers": 2, "n_heads": 4, "dim": 64}
TINY |= {"hidden_dim": 128, "d_model": 64, "encoder_layers": 1, "decoder_layers": 1}
PRECISIONS = ("fp32", "int8")


@dataclass(frozen=True)
class Model:
    """An architecture of transformers, what it reads, and what is compared."""

    kind: str
    config: str
    settings: dict[str, Any]
    inputs: dict[str, Any]  # shapes; whole numbers where the name says ids
    output: str = "last_hidden_state"
    calibrated: bool = False  # whether ONNX Runtime's int8 is static

    def build(self, tiny: bool) -> nn.Module:
        import transformers

        config = getattr(transformers, self.config)(**self.settings)
        if tiny:
            for name, value in TINY.items():
                if hasattr(config, name):
                    setattr(config, name, value)
        torch.manual_seed(0)
        model = getattr(transformers, self.kind)(config).eval()
        return Named(model, list(self.inputs), self.output).eval()

    def example(self) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(1)
        made = []
        for name, shape in self.inputs.items():
            whole = torch.randint(5, 190, shape) if "ids" in name else torch.randn(shape)
            made.append(torch.ones(shape, dtype=torch.int64) if "mask" in name else whole)
        return tuple(made)


class Named(nn.Module):
    """One output of a model, by the names of its inputs."""

    def __init__(self, model: nn.Module, names: list[str], output: str) -> None:
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        made = self.model(**dict(zip(self.names, inputs, strict=True)))
        found: torch.Tensor = made[self.output]
        return found


TEXT = {"input_ids": (1, 128), "attention_mask": (1, 128)}
MODELS = {
    "bert": Model("BertModel", "BertConfig", {}, TEXT),
    "distilbert": Model("DistilBertModel", "DistilBertConfig", {}, TEXT),
    # Eight texts at once, as a store of vectors is filled: 8,000 / ms texts in a second.
    "distilbert-8": Model(
        "DistilBertModel",
        "DistilBertConfig",
        {},
        {"input_ids": (8, 128), "attention_mask": (8, 128)},
    ),
    "clip": Model("CLIPVisionModel", "CLIPVisionConfig", {}, {"pixel_values": (1, 3, 224, 224)}),
    "yolos": Model(
        "YolosModel",
        "YolosConfig",
        {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768},
        {"pixel_values": (1, 3, 512, 864)},
    ),
    "detr": Model(
        "DetrModel",
        "DetrConfig",
        {"use_timm_backbone": False, "use_pretrained_backbone": False},
        {"pixel_values": (1, 3, 480, 640)},
        calibrated=True,
    ),
}


class Reader:
    """One example to calibrate on, as ONNX Runtime asks for it."""

    def __init__(self, feed: dict[str, np.ndarray]) -> None:
        self.left = [feed]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def make_ours(model: Model, module: nn.Module, precision: str, path: Path) -> None:
    inputs = model.example()
    options: dict[str, Any] = {"recipe": precision}
    if precision == "int8":
        options["calibration"] = [tuple(x.numpy() for x in inputs)]
    satchel.export(module, inputs, path, overwrite=True, **options)


def make_theirs(model: Model, module: nn.Module, precision: str, path: Path) -> None:
    from onnxruntime import quantization as q

    inputs, plain = model.example(), path.with_suffix(".plain.onnx")
    names = list(model.inputs)
    try:
        torch.onnx.export(module, inputs, str(plain), input_names=names, dynamo=False)
    except Exception:  # what tracing cannot do, torch.export can (pip install onnxscript)
        torch.onnx.export(module, inputs, str(plain), input_names=names, dynamo=True)
    if precision == "fp32":
        plain.rename(path)
    elif model.calibrated:
        feed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        kinds = {"activation_type": q.QuantType.QUInt8, "weight_type": q.QuantType.QInt8}
        q.quantize_static(str(plain), str(path), Reader(feed), per_channel=True, **kinds)
    else:
        q.quantize_dynamic(str(plain), str(path), weight_type=q.QuantType.QInt8)
    plain.unlink(missing_ok=True)


def open_ours(model: Model, path: Path, threads: int) -> Any:
    method = satchel.load(path).instance(threads).method("forward")
    arrays = [x.numpy() for x in model.example()]
    return lambda: method.run(*arrays)[0]


def open_theirs(model: Model, path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    known = {each.name for each in session.get_inputs()}
    given = zip(model.inputs, model.example(), strict=True)
    feed = {name: x.numpy() for name, x in given if name in known}
    return lambda: session.run(None, feed)[0]


@dataclass(frozen=True)
class Files:
    """What a model is run from: programs of both, and torch's answer."""

    folder: Path
    name: str

    def path(self, precision: str, kind: str) -> Path:
        return self.folder / f"{self.name}-{precision}.{kind}"

    def wanted(self) -> Any:
        return np.load(self.folder / f"{self.name}.npy")

    def prepare(self, model: Model, precisions: list[str], tiny: bool) -> None:
        made = {"satchel": make_ours, "onnx": make_theirs}
        answer = self.folder / f"{self.name}.npy"
        paths = [self.path(p, kind) for p in precisions for kind in made]
        if all(path.exists() for path in (answer, *paths)):
            return
        module = model.build(tiny)
        with torch.no_grad():
            np.save(answer, module(*model.example()).numpy())
        for precision in precisions:
            for kind, make in made.items():
                if not self.path(precision, kind).exists():
                    make(model, module, precision, self.path(precision, kind))


def measure(call: Callable[[], Any], runs: int) -> float:
    """The median of some runs after one that warms up, in seconds."""
    call()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=10, help="of each in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the command")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="where files are, or stay")
    parser.add_argument("--prepare", action="store_true", help="make the files, measure nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        place = arguments.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        files = {name: Files(place, name) for name in arguments.models or MODELS}
        for name, each in files.items():
            each.prepare(MODELS[name], arguments.precisions, arguments.tiny)
        if arguments.prepare:
            return
        print("| model | | Satchel, ms | ONNX Runtime, ms | times | difference |")
        print("|---|---|---|---|---|---|")
        for name, each in files.items():
            for precision in arguments.precisions:
                print(compare(MODELS[name], each, precision, arguments), flush=True)


def compare(model: Model, files: Files, precision: str, arguments: Any) -> str:
    """A line of the table: medians of rounds in which both take turns."""
    calls = [
        open_ours(model, files.path(precision, "satchel"), arguments.threads),
        open_theirs(model, files.path(precision, "onnx"), arguments.threads),
    ]
    rounds = [[measure(call, arguments.runs) for call in calls] for _ in range(arguments.rounds)]
    wanted = files.wanted()
    apart = [np.abs(call() - wanted).max() / np.abs(wanted).max() for call in calls]
    mine, other = (statistics.median(r[i] for r in rounds) * 1e3 for i in range(2))
    off = " / ".join(f"{a:.0e}" for a in apart)
    return f"| {files.name} | {precision} | {mine:.1f} | {other:.1f} | {other / mine:.2f} | {off} |"


if __name__ == "__main__":
    main()
