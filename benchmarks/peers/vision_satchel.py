"""Satchel: exported from the module, int8 calibrated on the same images as the others."""

from __future__ import annotations

from pathlib import Path

from vision_models import CALIBRATION_IMAGES, build, images
from vision_verbs import Run, main


def prepare(model: str, precision: str, _source: Path, out: Path) -> None:
    import torch

    import satchel

    examples = [torch.from_numpy(image) for image in images(CALIBRATION_IMAGES)]
    options = {"calibration": [(x,) for x in examples]} if precision == "int8" else {}
    path = out / "model.satchel"
    satchel.export(build(model), (examples[0],), path, recipe=precision, overwrite=True, **options)


def load(folder: Path, threads: int) -> tuple[str, Run]:
    import satchel

    instance = satchel.load(folder / "model.satchel").instance(threads=threads)
    method, (image,) = instance.method("forward"), images(1)
    return f"Satchel, {instance.kernels}", lambda: method.run(image)


if __name__ == "__main__":
    main(__doc__ or "", prepare, load)
