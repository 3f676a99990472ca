"""Vision models of torchvision with random weights on a GPU: how far from torch and the CPU, and
how fast.

    python benchmarks/vulkan_vision.py resnet50 vit_b_16 swin_t mobilenet_v3_small

Differences are shares of the largest result; times are whole calls, the best of 20, in ms.
`--ncnn` runs ncnn's Vulkan on the same model in turns, in floats (pip install ncnn pnnx).
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import subprocess
import tempfile
import time
from collections.abc import Callable
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


def fastest(run: Callable[[], Any], calls: int = 20) -> float:
    """In milliseconds."""
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times) * 1e3


def tell_ncnn(name: str, model: Any, x: torch.Tensor, want: Any, is_half: bool) -> None:
    import ncnn

    found = importlib.util.find_spec("pnnx")
    folders = found.submodule_search_locations if found else None
    if not folders:
        raise SystemExit("pnnx is not installed")
    net = ncnn.Net()
    net.opt.use_vulkan_compute = True
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = is_half
    with tempfile.TemporaryDirectory() as folder:
        torch.jit.trace(model, x, check_trace=False).save(f"{folder}/model.pt")
        command = [f"{folders[0]}/pnnx", "model.pt", "inputshape=[1,3,224,224]", "fp16=0"]
        subprocess.run(command, check=True, cwd=folder, capture_output=True)
        if net.load_param(f"{folder}/model.ncnn.param") or net.load_model(
            f"{folder}/model.ncnn.bin"
        ):
            print(f"{name:20} ncnn cannot load what pnnx wrote", flush=True)
            return

    def run() -> Any:
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(x[0].numpy()))
        status, result = extractor.extract("out0")
        if status:
            raise SystemExit("ncnn cannot run what pnnx wrote")
        return np.array(result).reshape(want.shape)

    off = apart(run(), want)
    print(
        f"{name:20} {'fp16' if is_half else 'fp32'}  {fastest(run):8.2f} ms by ncnn "
        f"{ncnn.__version__} on {ncnn.get_gpu_count()} GPU(s), from torch's {off:.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--recipes", default="fp32,fp16,int8")
    parser.add_argument("--target", default="vulkan")
    parser.add_argument("--ncnn", action="store_true")
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
                took = fastest(functools.partial(forward.run, x.numpy()))
            parts = "+".join(part.executor for part in instance.parts)
            print(
                f"{name:20} {recipe:5} {took:8.2f} ms on {parts}, from the CPU's "
                f"{apart(got, cpu):.1e}, from torch's {apart(got, want):.1e} (the CPU's "
                f"{apart(cpu, want):.1e})",
                flush=True,
            )
            if arguments.ncnn and recipe != "int8":
                tell_ncnn(name, model, x, want, recipe == "fp16")


if __name__ == "__main__":
    main()
