"""torch itself, eager: the module as it is. Its own dynamic int8 is another thing, and left out."""

from __future__ import annotations

from pathlib import Path

from vision_models import build, images
from vision_verbs import Run, main


def prepare(model: str, precision: str, _source: Path, out: Path) -> None:
    if precision != "fp32":
        raise SystemExit("eager torch has no static int8")
    (out / "model.txt").write_text(model)


def load(folder: Path, threads: int) -> tuple[str, Run]:
    import torch

    torch.set_num_threads(threads)
    module, (image,) = build((folder / "model.txt").read_text()), images(1)
    tensor = torch.from_numpy(image)

    def run() -> None:
        with torch.inference_mode():
            module(tensor)

    return f"torch {torch.__version__}", run


if __name__ == "__main__":
    main(__doc__ or "", prepare, load)
