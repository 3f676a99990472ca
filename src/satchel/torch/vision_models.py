"""Models of torchvision by name, with their preprocessing, classes and weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from satchel.checkpoints.stored import StoredTensor
from satchel.checkpoints.weightfile import WeightFile
from satchel.errors import CheckpointError, ConfigError, UnsupportedModelError
from satchel.progress import Progress
from satchel.torch.vision_weights import find_weights
from satchel.vision.preprocess import Preprocessing

PREFIX = "torchvision:"


_undefined: list[torch.library.Library] = []  # kept: what it declares ends with it


def torchvision_models() -> Any:
    """The module ``torchvision.models``."""
    try:
        try:
            from torchvision import models
        except RuntimeError as error:
            if "torchvision::nms does not exist" not in str(error):
                raise
            _declare_operators()
            from torchvision import models
    except Exception as error:  # a build for another torch fails in ways of its own
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"torchvision cannot be imported ({reason})", "pip install 'satchel[vision]'."
        ) from None
    return models


def _declare_operators() -> None:
    """A build for another torch lacks operators of detectors, which no classifier calls."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _undefined.append(library)


class VisionModel:
    """A classifier of torchvision in evaluation mode, with what belongs to it."""

    def __init__(
        self,
        name: str,
        weights: str | Path | None = None,
        classes: str | Path | None = None,
        random_weights: bool = False,
        progress: Progress | None = None,
    ) -> None:
        models = torchvision_models()
        self.name = name.removeprefix(PREFIX)
        if self.name not in models.list_models(module=models):
            known = "mobilenet_v3_small, resnet50, vit_b_16, swin_t"
            raise UnsupportedModelError(
                f"torchvision has no classifier {self.name!r}", f"For example: {known}."
            )
        entries = models.get_model_weights(self.name)
        self.entry = entries.DEFAULT
        state: Mapping[str, torch.Tensor] | None = None
        if weights is not None or not random_weights:
            folder = Path(str(torch.hub.get_dir())) / "checkpoints"
            wanted = None if weights is None else str(weights)
            found = find_weights(entries, self.name, wanted, folder, progress)
            self.entry = found.entry
            state = read_weights(found.path)
        self.preprocessing = _preprocessing(self.entry.transforms())
        count = None if state is None else _class_count(models, self.name, state)
        self.module = models.get_model(
            self.name, weights=None, **({} if count is None else {"num_classes": count})
        ).eval()
        if state is not None:
            fill_weights(self.module, state, self.name)
        else:
            fill_zeros(self.module)
        usual = list(self.entry.meta.get("categories", []))
        self.classes = class_names(classes, count or 1000, usual)

    def example(self) -> torch.Tensor:
        return torch.zeros(1, 3, *self.preprocessing.crop)


def fill_zeros(module: torch.nn.Module) -> None:
    """Small random numbers wherever training would begin at zero.

    A last layer of zeros (ViT's) gives every image the same scores, whatever rounding does to it.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(std=0.02)


def class_names(file: str | Path | None, count: int, usual: list[str]) -> list[str]:
    """Those of a file, else the usual ones, else numbers."""
    if file is not None:
        names = [n.strip() for n in Path(file).read_text(encoding="utf-8").splitlines()]
        names = [n for n in names if n]
        if len(names) != count:
            raise ConfigError(f"{file} names {len(names)} classes, and the model has {count}")
        return names
    return usual if len(usual) == count else [f"class {i}" for i in range(count)]


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """A state dict from a .pth (read without running its pickle), .safetensors or .gguf file."""
    from satchel.checkpoints.gguf_file import read_gguf_tensors
    from satchel.checkpoints.safetensors_file import read_header
    from satchel.checkpoints.torch_file import read_state_dict

    readers = {".safetensors": read_header, ".gguf": read_gguf_tensors}
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist", "Give a file of weights.")
    file = WeightFile(path)
    try:
        tensors: Mapping[str, StoredTensor] = readers.get(path.suffix, read_state_dict)(file)
        floats = {n: t for n, t in tensors.items() if t.codec is not None}
        return {n: torch.from_numpy(t.read(n).reshape(t.shape)) for n, t in floats.items()}
    finally:
        file.close()


def _preprocessing(transforms: Any) -> Preprocessing:
    crop, resize = transforms.crop_size, transforms.resize_size
    return Preprocessing(
        int(resize[0]),
        (int(crop[0]), int(crop[-1])),
        tuple(transforms.mean),
        tuple(transforms.std),
        transforms.interpolation.value,
    )


def _class_count(models: Any, name: str, state: Mapping[str, torch.Tensor]) -> int | None:
    """As many as the last layer has outputs in these weights."""
    with torch.device("meta"):
        shapes = models.get_model(name, weights=None).state_dict()
    last = [key for key in shapes if key.endswith(".weight") and shapes[key].ndim == 2][-1]
    return int(state[last].shape[0]) if last in state else None


def fill_weights(module: torch.nn.Module, state: Mapping[str, torch.Tensor], name: str) -> None:
    """Exactly these weights; CheckpointError says which one is missing, unknown or does not fit."""
    wanted = module.state_dict()
    counters = {k for k in wanted if k.endswith("num_batches_tracked")}
    missing = [k for k in wanted if k not in state and k not in counters]
    extra = [k for k in state if k not in wanted]
    if missing or extra:
        what = f"lack {missing[0]}" if missing else f"have {extra[0]}, which is not in it"
        raise CheckpointError(f"the weights are not those of {name}: they {what}")
    for key, tensor in state.items():
        if tensor.shape != wanted[key].shape and key not in counters:
            raise CheckpointError(
                f"{key} has the shape {list(tensor.shape)}, and {name} needs "
                f"{list(wanted[key].shape)}"
            )
    module.load_state_dict({k: v for k, v in state.items() if k not in counters}, strict=False)
