"""ExecuTorch with XNNPACK: exported from the module, int8 by its static quantiser."""

from __future__ import annotations

from pathlib import Path

from vision_models import CALIBRATION_IMAGES, build, images
from vision_verbs import Run, main


def prepare(model: str, precision: str, _source: Path, out: Path) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    module, example = build(model), (torch.from_numpy(images(1)[0]),)
    if precision == "int8":
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        config = get_symmetric_quantization_config(is_per_channel=True)
        captured = torch.export.export(module, example).module()
        observed = prepare_pt2e(captured, XNNPACKQuantizer().set_global(config))
        for image in images(CALIBRATION_IMAGES):
            observed(torch.from_numpy(image))
        module = convert_pt2e(observed)
    program = to_edge_transform_and_lower(
        torch.export.export(module, example), partitioner=[XnnpackPartitioner()]
    ).to_executorch()
    (out / "model.pte").write_bytes(program.buffer)


def load(folder: Path, threads: int) -> tuple[str, Run]:
    from importlib.metadata import version

    import torch
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    portable_lib._unsafe_reset_threadpool(threads)
    method = Runtime.get().load_program(folder / "model.pte").load_method("forward")
    if method is None:
        raise SystemExit("there is no method forward")
    image = torch.from_numpy(images(1)[0])
    return f"executorch {version('executorch')}", lambda: method.execute([image])


if __name__ == "__main__":
    main(__doc__ or "", prepare, load)
