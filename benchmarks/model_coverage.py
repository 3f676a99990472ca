"""Models of torchvision, transformers and timm that nobody tuned for, exported and run.

    python benchmarks/model_coverage.py transformers                  # 60 architectures, tiny ones
    python benchmarks/model_coverage.py timm torchvision --int8       # int8's signal-to-noise too
    python benchmarks/model_coverage.py transformers bert whisper     # some of them
    python benchmarks/model_coverage.py transformers --int8 --write docs/coverage.md
    python benchmarks/model_coverage.py timm --journal timm.jsonl --for 400   # in pieces

Weights are random. Of each model: whether it is exported, the largest difference to torch relative
to the largest number, and with --int8 the signal-to-noise ratio of its outputs. --write puts the
table of a family into a file, in the place of an earlier one. Each model has a process of its own
with --seconds and --megabytes; with --journal a command that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from apart import Journal, TrialError, run_apart
from detectors import Detector, furthest_rows
from torch import nn

import satchel
from satchel.torch.vision_models import torchvision_models

TEXT = """albert bart bert big_bird biogpt bloom camembert canine codegen convbert ctrl deberta
deberta-v2 distilbert electra ernie esm falcon fnet funnel gemma gemma2 gpt2 gpt_neo gpt_neox gptj
granite ibert layoutlm led llama longformer luke m2m_100 marian mbart megatron-bert mistral
mobilebert modernbert mpnet mt5 mvp nystromformer olmo opt pegasus phi phi3 plbart qwen2 qwen3
rembert roberta roformer squeezebert stablelm t5 umt5 xglm xlm xlm-roberta xlnet xmod""".split()
IMAGE = """beit bit convnext convnextv2 cvt data2vec-vision deit detr dinov2 dpt efficientnet
focalnet glpn hiera ijepa levit mobilenet_v1 mobilenet_v2 mobilevit poolformer pvt regnet resnet
segformer siglip_vision_model swin swinv2 vit vit_mae vit_msn yolos clip_vision_model""".split()
SOUND = "whisper wav2vec2 hubert wavlm sew unispeech audio-spectrogram-transformer".split()
TIMM = """resnet18 resnet50d resnext50_32x4d seresnet50 wide_resnet50_2 densenet121 vgg11
mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small efficientnet_b0 efficientnet_lite0
tf_efficientnetv2_b0 ghostnet_100 regnety_002 convnext_atto convnextv2_atto repvgg_a0 mixer_s32_224
vit_tiny_patch16_224 deit_tiny_patch16_224 swin_tiny_patch4_window7_224 cait_xxs24_224
mobilevit_xxs coat_lite_tiny poolformer_s12 pit_ti_224 levit_128s edgenext_xx_small inception_v3
beit_base_patch16_224 hrnet_w18_small dla34 nfnet_l0 xcit_nano_12_p16_224""".split()
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "embed_dim", "encoder_hidden_size"), 32),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "n_inner", "hidden_dim"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_inner", "dff", "moe_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers", "n_head_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads",), 2),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "rotary_dim"), 8),
    **dict.fromkeys(("vocab_size",), 99),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 64),
    "max_source_positions": 20,
    "max_target_positions": 40,
    "image_size": 64,
}
# What some need to be made at all, and what has to stay in proportion when they are shrunk.
MADE_WITH: dict[str, dict[str, Any]] = {
    "esm": {"vocab_size": 99, "pad_token_id": 1, "mask_token_id": 32},
    "funnel": {
        "block_sizes": (1, 1, 1),
        "block_repeats": [1, 1, 1],
        "architectures": ["FunnelModel"],
    },
    "xmod": {"default_language": "en_XX"},
    "detr": {"backbone_config": {"model_type": "resnet", "out_features": ["stage4"]}},
}
KEPT: dict[str, dict[str, Any]] = {
    "convnext": {"num_stages": 4},  # as many as it has sizes
    "convnextv2": {"num_stages": 4},
    "efficientnet": {"width_coefficient": 0.25, "hidden_dim": 320},
    "swin": {"embed_dim": 48, "hidden_size": 384, "window_size": 2},
    "swinv2": {"embed_dim": 48, "hidden_size": 384, "window_size": 2},
}
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


@dataclass(frozen=True)
class Case:
    """A module, its inputs by name, and what to compare."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    any_order: bool = False  # whether rows of the outputs may be swapped


class First(nn.Module):
    """The tensors of a model's answer, flat, without its caches."""

    def __init__(self, model: nn.Module, names: list[str], **settings: Any) -> None:
        super().__init__()
        self.model, self.names, self.settings = model, names, settings

    def forward(self, *inputs: torch.Tensor) -> Any:
        made = self.model(**dict(zip(self.names, inputs, strict=True)), **self.settings)
        if isinstance(made, torch.Tensor):
            return made
        values = made.values() if hasattr(made, "values") else made
        tensors = [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]
        return tuple(tensors[:2])


def shrink(config: Any) -> Any:
    """The same architecture with little of everything."""
    for name, size in SMALL.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > size:
            with contextlib.suppress(NotImplementedError):  # a sum of others
                setattr(config, name, size)
    for name in SPECIAL:
        value = getattr(config, name, None)
        if isinstance(value, int) and value >= 99:
            setattr(config, name, 1)
    for value in list(vars(config).values()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            shrink(value)
    return config


def transformers_case(name: str) -> Case:
    import transformers

    config = shrink(transformers.AutoConfig.for_model(name, **MADE_WITH.get(name, {})))
    config.update({"use_cache": False, **KEPT.get(name, {})})
    model = transformers.AutoModel.from_config(config).eval()
    main = model.main_input_name
    if main == "pixel_values":
        size = getattr(config, "image_size", 64)
        size = size if isinstance(size, int) else size[0]
        shape = (1, getattr(config, "num_channels", 3), size, size)
        inputs = {main: torch.randn(shape)}
        embeddings = getattr(model, "embeddings", None)
        count = getattr(getattr(embeddings, "patch_embeddings", None), "num_patches", None)
        if count and "noise" in inspect.signature(model.forward).parameters:
            inputs["noise"] = torch.rand(1, count)  # which patches are hidden
        return Case(First(model, list(inputs)), inputs)
    if name in SOUND:
        bins = getattr(config, "num_mel_bins", 0)
        shape = (1, 2000) if not bins else (1, bins, 40) if name == "whisper" else (1, 1024, bins)
        inputs = {main: torch.randn(shape)}
    else:
        inputs = {"input_ids": torch.randint(5, 90, (1, 16))}
        if not config.is_encoder_decoder:
            inputs["attention_mask"] = torch.ones(1, 16, dtype=torch.int64)
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(5, 90, (1, 6))
    return Case(First(model, list(inputs)), inputs)


def timm_case(name: str) -> Case:
    from satchel.torch.timm_models import TimmModel

    model = TimmModel(name, random_weights=True)
    return Case(model.module, {"x": torch.randn_like(model.example())})


def torchvision_case(name: str) -> Case:
    models = torchvision_models()
    takes = inspect.signature(models.get_model_builder(name)).parameters
    options = {"weights_backbone": None} if "weights_backbone" in takes else {}
    model = models.get_model(name, weights=None, **options).eval()
    parts = type(model).__module__.split(".")
    size = 299 if name == "inception_v3" else 224
    shape: tuple[int, ...] = (1, 3, size, size)
    if "video" in parts:
        whole = name == "s3d" or name.startswith("mvit")  # which take no less
        shape = (1, 3, 16, 224, 224) if whole else (1, 3, 8, 112, 112)
    if "detection" in parts:
        image = torch.rand(3, size, size)
        return Case(Detector(model, image), {"x": image}, any_order=True)
    if "optical_flow" in parts:
        names = ["image1", "image2"]
        return Case(First(model, names), {n: torch.randn(1, 3, 128, 128) for n in names})
    return Case(First(model, [_first_input(model)]), {"x": torch.randn(shape)})


def _first_input(model: nn.Module) -> str:
    return next(iter(inspect.signature(model.forward).parameters))


def torchvision_names() -> list[str]:
    models = torchvision_models()
    return [n for n in models.list_models() if not n.startswith("quantized_")]


FAMILIES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Case]]] = {
    "transformers": (lambda: [*TEXT, *IMAGE, *SOUND], transformers_case),
    "timm": (lambda: TIMM, timm_case),
    "torchvision": (torchvision_names, torchvision_case),
}


def fill_empty(module: nn.Module) -> None:
    """A head of zeros would prove nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point() and not parameter.any():
                parameter.normal_(std=0.02)


def largest_difference(made: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Relative to the largest number of an output."""
    pairs = zip(made, wanted, strict=True)
    return max(float(np.abs(a - b).max() / (np.abs(b).max() or 1.0)) for a, b in pairs)


def outcome(case: Case, folder: Path, int8: bool) -> tuple[str, str]:
    """The largest relative difference, and int8's ratio in dB."""
    fill_empty(case.module.eval())
    inputs = tuple(case.inputs.values())
    with torch.no_grad():
        wanted = case.module(*(x.clone() for x in inputs))
    listed = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    path = satchel.export(case.module, inputs, folder / "m.satchel", overwrite=True)
    arrays = [x.numpy() for x in inputs]
    made = satchel.load(path).method().run(*arrays)
    wanted_arrays = [theirs.numpy() for theirs in listed]
    worst = (furthest_rows if case.any_order else largest_difference)(made, wanted_arrays)
    ratio = ""
    if int8:
        examples = [tuple(arrays)]
        path = satchel.export(
            case.module,
            inputs,
            folder / "i.satchel",
            recipe="int8",
            calibration=examples,
            overwrite=True,
        )
        ratio = f"{satchel.load(path).metadata['output_snr_db']:.0f}"
    return f"{worst:.0e}", ratio


def row(family: str, name: str, int8: bool) -> str:
    """A model's line of the table."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        case = FAMILIES[family][1](name)
    except Exception as error:  # the library itself cannot make it this small
        reason = " ".join(str(error).split())[:80].replace("|", "/")
        return f"| {name} | not made | | {type(error).__name__}: {reason} |"
    try:
        with tempfile.TemporaryDirectory() as folder:
            worst, ratio = outcome(case, Path(folder), int8)
        return f"| {name} | {worst} | {ratio} | |"
    except Exception as error:
        reason = " ".join(str(error).split())
        reason = reason.split("not supported: ")[-1][:140].replace("|", "/")
        return f"| {name} | **no** | | {type(error).__name__}: {reason} |"


def rows(family: str, names: list[str], journal: Journal, arguments: Any) -> Iterator[str]:
    ends = time.monotonic() + arguments.spend
    for name in names:
        key = f"{family} {name}" + (" int8" if arguments.int8 else "")
        if key not in journal:
            if time.monotonic() > ends:
                raise SystemExit("The time is over. Run the same command again to go on.")
            trial = functools.partial(row, family, name, arguments.int8)
            try:
                journal.add(key, run_apart(trial, arguments.seconds, arguments.megabytes))
            except TrialError as error:
                journal.add(key, f"| {name} | **no** | | {error} |")
        yield journal[key]


def write(path: Path, family: str, lines: list[str], command: str) -> None:
    """Put a family's table into a file, in the place of its earlier one."""
    tried = [line for line in lines if "| not made |" not in line]
    good = [line for line in tried if "**no**" not in line]
    section = [
        f"## {family}",
        "",
        f"`{command}`: {len(good)} of {len(tried)}.",
        "",
        "| model | largest difference | int8, dB | |",
        "|---|---|---|---|",
        *lines,
        "",
    ]
    text = path.read_text(encoding="utf-8") if path.exists() else "# Models, one by one\n\n"
    text = re.sub(rf"## {family}\n.*?(?=\n## |\Z)", "", text, flags=re.S).rstrip("\n")
    path.write_text(text + "\n\n" + "\n".join(section), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", help=f"{', '.join(FAMILIES)}, and models of the last")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--write", metavar="FILE", type=Path)
    parser.add_argument("--journal", metavar="FILE", type=Path, help="where results are kept")
    parser.add_argument("--for", dest="spend", type=float, default=1e9, help="seconds in all")
    parser.add_argument("--seconds", type=float, default=240, help="of each model")
    parser.add_argument("--megabytes", type=int, default=4000, help="of each model")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    families = [n for n in arguments.names if n in FAMILIES]
    chosen = [n for n in arguments.names if n not in FAMILIES]
    journal = Journal(arguments.journal)
    for family in families:
        if family != "transformers":
            torchvision_models()  # also where it is built for another torch; timm uses it
        importlib.import_module(family)  # once, for all that are forked
        lines = []
        for line in rows(family, chosen or FAMILIES[family][0](), journal, arguments):
            print(line, flush=True)
            lines.append(line)
        if arguments.write:
            flags = " --int8" if arguments.int8 else ""
            command = f"python benchmarks/model_coverage.py {family}{flags}"
            write(arguments.write, family, lines, command)


if __name__ == "__main__":
    main()
