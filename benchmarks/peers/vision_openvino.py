"""OpenVINO: from the ONNX file, int8 by NNCF."""

from __future__ import annotations

from pathlib import Path

from vision_models import CALIBRATION_IMAGES, images
from vision_verbs import Run, main


def prepare(model: str, precision: str, source: Path, out: Path) -> None:
    import openvino

    converted = openvino.convert_model(source / "model.onnx")
    if precision == "int8":
        import nncf

        kind = nncf.ModelType.TRANSFORMER if model in ("vit_b_16", "swin_t") else None
        data = nncf.Dataset([{"image": image} for image in images(CALIBRATION_IMAGES)])
        converted = nncf.quantize(converted, data, model_type=kind, subset_size=CALIBRATION_IMAGES)
    openvino.save_model(converted, out / "model.xml", compress_to_fp16=False)


def load(folder: Path, threads: int) -> tuple[str, Run]:
    import openvino

    # Without the hint, fp32 models would run in bf16 where the CPU has it.
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    config |= {"PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(folder / "model.xml", "CPU", config)
    request, (image,) = compiled.create_infer_request(), images(1)
    return f"openvino {openvino.__version__.split('-')[0]}", lambda: request.infer([image])


if __name__ == "__main__":
    main(__doc__ or "", prepare, load)
