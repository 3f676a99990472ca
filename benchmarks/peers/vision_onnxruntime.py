"""ONNX Runtime: the ONNX file as it is, and with static int8 in its QDQ form.

Its fp32 folder has the model.onnx that OpenVINO and ncnn read too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vision_models import CALIBRATION_IMAGES, build, images
from vision_verbs import Run, main


class Reader:
    def __init__(self) -> None:
        self.left = iter(images(CALIBRATION_IMAGES))

    def get_next(self) -> dict[str, Any] | None:
        image = next(self.left, None)
        return None if image is None else {"image": image}


def prepare(model: str, precision: str, source: Path, out: Path) -> None:
    import torch

    if precision == "fp32":
        example = (torch.from_numpy(images(1)[0]),)
        torch.onnx.export(
            build(model),
            example,
            str(out / "model.onnx"),
            input_names=["image"],
            opset_version=18,
            dynamo=True,
            external_data=False,
        )
        return
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(
        str(source / "model.onnx"), str(out / "prepared.onnx"), skip_symbolic_shape=True
    )
    q.quantize_static(
        str(out / "prepared.onnx"),
        str(out / "model.onnx"),
        Reader(),
        quant_format=q.QuantFormat.QDQ,
        per_channel=True,
        activation_type=q.QuantType.QUInt8,
        weight_type=q.QuantType.QInt8,
    )


def load(folder: Path, threads: int) -> tuple[str, Run]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    (image,) = images(1)
    return f"onnxruntime {onnxruntime.__version__}", lambda: session.run(None, {"image": image})


if __name__ == "__main__":
    main(__doc__ or "", prepare, load)
