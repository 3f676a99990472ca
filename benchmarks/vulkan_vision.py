"""Vision models of torchvision with random weights on a GPU: how far from torch and the CPU, and
how fast.

    python benchmarks/vulkan_vision.py resnet50 vit_b_16 swin_t mobilenet_v3_small

Differences are shares of the largest result; times are whole calls, the best of 20, in ms.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision

import satchel
from satchel.runtime.program import Program


def random_model(name: str) -> Any:
    """With a head that is not zero, and statistics of batch norms as training leaves them."""
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None)
    if name.startswith("vit"):
        torch.nn.init.normal_(model.heads.head.weight, std=0.05)
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 224, 224))
    return model.eval()


def apart(a: Any, b: Any) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--recipes", default="fp32,fp16,int8")
    parser.add_argument("--target", default="vulkan")
    arguments = parser.parse_args()
    for name in arguments.models:
        model, x = random_model(name), torch.randn(1, 3, 224, 224)
        with torch.no_grad():
            want = model(x).numpy()
        for recipe in arguments.recipes.split(","):
            with tempfile.TemporaryDirectory() as folder:
                calibration = {"calibration": [(x,)]} if recipe == "int8" else {}
                path = satchel.export(
                    model, (x,), Path(folder) / "p.satchel", recipe=recipe, **calibration
                )
                cpu = Program(path, target="cpu").method()(x.numpy())
                instance = Program(path, target=arguments.target).instance(threads=1)
                forward = instance.method("forward")
                got = forward.run(x.numpy())[0]
                times = []
                for _ in range(20):
                    started = time.perf_counter()
                    forward.run(x.numpy())
                    times.append(time.perf_counter() - started)
            parts = "+".join(part.executor for part in instance.parts)
            print(
                f"{name:20} {recipe:5} {min(times) * 1e3:8.2f} ms on {parts}, from the CPU's "
                f"{apart(got, cpu):.1e}, from torch's {apart(got, want):.1e} (the CPU's "
                f"{apart(cpu, want):.1e})",
                flush=True,
            )


if __name__ == "__main__":
    main()
