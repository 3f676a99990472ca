"""Satchel and ONNX Runtime on encoders and detectors, in turns in one process.

    python benchmarks/modules_side_by_side.py --rounds 5 --threads 2
    python benchmarks/modules_side_by_side.py bert distilbert --precisions int8
    python benchmarks/modules_side_by_side.py bert --tiny --rounds 1     # whether it works

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


def ours(model: Model, module: nn.Module, precision: str, work: Path, threads: int) -> Any:
    inputs = model.example()
    options: dict[str, Any] = {"recipe": precision}
    if precision == "int8":
        options["calibration"] = [tuple(x.numpy() for x in inputs)]
    path = satchel.export(module, inputs, work / "m.satchel", overwrite=True, **options)
    method = satchel.load(path).instance(threads).method("forward")
    arrays = [x.numpy() for x in inputs]
    return lambda: method.run(*arrays)[0]


def theirs(model: Model, module: nn.Module, precision: str, work: Path, threads: int) -> Any:
    import onnxruntime
    from onnxruntime import quantization as q

    inputs, path = model.example(), work / "m.onnx"
    names = list(model.inputs)
    try:
        torch.onnx.export(module, inputs, str(path), input_names=names, dynamo=False)
    except Exception:  # what tracing cannot do, torch.export can (pip install onnxscript)
        torch.onnx.export(module, inputs, str(path), input_names=names, dynamo=True)
    feed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
    if precision == "int8":
        rounded = work / "q.onnx"
        if model.calibrated:
            kinds = {"activation_type": q.QuantType.QUInt8, "weight_type": q.QuantType.QInt8}
            q.quantize_static(str(path), str(rounded), Reader(feed), per_channel=True, **kinds)
        else:
            q.quantize_dynamic(str(path), str(rounded), weight_type=q.QuantType.QInt8)
        path = rounded
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    known = {each.name for each in session.get_inputs()}
    feed = {name: value for name, value in feed.items() if name in known}
    return lambda: session.run(None, feed)[0]


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
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | | Satchel, ms | ONNX Runtime, ms | times | difference |")
    print("|---|---|---|---|---|---|")
    for name in arguments.models or MODELS:
        model = MODELS[name]
        module = model.build(arguments.tiny)
        with torch.no_grad():
            wanted = module(*model.example()).numpy()
        for precision in arguments.precisions:
            with tempfile.TemporaryDirectory() as folder:
                given = (model, module, precision, Path(folder), arguments.threads)
                calls = [ours(*given), theirs(*given)]
                rounds = [
                    [measure(call, arguments.runs) for call in calls]
                    for _ in range(arguments.rounds)
                ]
                apart = [np.abs(call() - wanted).max() / np.abs(wanted).max() for call in calls]
            mine, other = (statistics.median(r[i] for r in rounds) * 1e3 for i in range(2))
            off = " / ".join(f"{a:.0e}" for a in apart)
            print(
                f"| {name} | {precision} | {mine:.1f} | {other:.1f} | {other / mine:.2f} | {off} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
