"""ncnn: from the ONNX file by pnnx, in fp32."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

from vision_models import IMAGE, images
from vision_verbs import Run, main


def prepare(_model: str, precision: str, source: Path, out: Path) -> None:
    if precision != "fp32":
        raise SystemExit("no static int8 from ONNX files by its tools")

    # The package itself wants torch, its converter does not.
    found = importlib.util.find_spec("pnnx")
    folders = found.submodule_search_locations if found else None
    if not folders:
        raise SystemExit("pnnx is not installed")
    converter = Path(folders[0]) / "pnnx"
    local = out / "model.onnx"
    local.write_bytes((source / "model.onnx").read_bytes())
    shape = "inputshape=[" + ",".join(map(str, IMAGE)) + "]"
    subprocess.run([str(converter), str(local), shape, "fp16=0"], check=True, cwd=out)
    if not (out / "model.ncnn.param").exists():
        raise SystemExit("pnnx wrote no model")


def load(folder: Path, threads: int) -> tuple[str, Run]:
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    if net.load_param(str(folder / "model.ncnn.param")) or net.load_model(
        str(folder / "model.ncnn.bin")
    ):
        raise SystemExit("ncnn cannot load what pnnx wrote")
    image = ncnn.Mat(images(1)[0][0])

    def run() -> None:
        extractor = net.create_extractor()
        extractor.input("in0", image)
        status, _ = extractor.extract("out0")
        if status:
            raise SystemExit("ncnn cannot run what pnnx wrote")

    return f"ncnn {ncnn.__version__}", run


if __name__ == "__main__":
    main(__doc__ or "", prepare, load)
