"""Vision models on an NPU, or its emulator, beside the reference's rounded run and float.

    python benchmarks/npu_vision.py
    python benchmarks/npu_vision.py vit_b_16 --recipe 16a8w --target qnn:SM8650
    python benchmarks/npu_vision.py mobilenet_v3_small --weights net.gguf --photos photos/

Models of torchvision; without --weights they have random ones, and no layer of zeros. Ranges are
measured on all images but the last, and that one is compared.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from satchel.backends import open_instance
from satchel.backends.qnn.compiler import cosine
from satchel.machine import peak_rss
from satchel.runtime.program import Program
from satchel.torch.job import export_module
from satchel.torch.vision_models import VisionModel
from satchel.vision.images import image_paths, open_image

NAMES = ("mobilenet_v3_small", "resnet50", "vit_b_16", "swin_t")


def declare_operators() -> Any:
    """A torchvision built for another torch lacks operators that it names."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def load_model(name: str, weights: str | None) -> VisionModel:
    torch.manual_seed(0)
    return VisionModel(name, weights, random_weights=weights is None)


def images(model: VisionModel, folder: str | None) -> list[np.ndarray]:
    if folder:
        paths = image_paths(Path(folder))
        return [model.preprocessing.prepare(open_image(path, str(path))) for path in paths]
    random = np.random.default_rng(0)
    shape = (1, 3, *model.preprocessing.crop)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--recipe", default="int8")
    parser.add_argument("--target", default="qnn:SM8750")
    parser.add_argument("--weights")
    parser.add_argument("--photos", metavar="FOLDER")
    arguments = parser.parse_args()
    library = declare_operators()
    assert library is not None  # operators are gone with it
    for name in arguments.names:
        model = load_model(name, arguments.weights)
        given = images(model, arguments.photos)
        with tempfile.TemporaryDirectory() as folder:
            path = export_module(
                model.module,
                (model.example(),),
                Path(folder) / "p.satchel",
                recipe=arguments.recipe,
                target=arguments.target,
                calibration=given[:-1],
            )
            program = Program(path)
            meta = program.metadata
            (shard,) = meta["payloads"][arguments.target]["shards"]
            (got,) = program.instance().method("forward").run(given[-1])
            (wanted,) = open_instance(program, reference=True).method("forward").run(given[-1])
        with torch.no_grad():
            exact = model.module(torch.from_numpy(given[-1])).numpy()
        span = float(wanted.max() - wanted.min())
        print(
            f"{name} as {arguments.recipe} for {arguments.target}: "
            f"compiled in {shard['processor_seconds']:.1f} s of processor time with "
            f"{shard['peak_memory_bytes'] / 1e6:.0f} MB, "
            f"binary {shard['binary_bytes'] / 1e6:.1f} MB, file {program.size / 1e6:.1f} MB, "
            f"the export's own memory {peak_rss() / 1e6:.0f} MB\n"
            f"  {meta['placement']['nodes']} nodes, {len(meta['in_16_bits'])} of "
            f"{len(meta['layer_snr_db'])} layers in 16 bits\n"
            f"  to the reference's rounded run: cosine {cosine(got, wanted):.5f}, largest "
            f"difference {float(np.abs(got - wanted).max()) / span:.2%} of the scores' range; "
            f"calibrated example {shard['largest_steps']} steps\n"
            f"  rounded to float: cosine {cosine(wanted, exact):.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
