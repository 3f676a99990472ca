"""docs/guides.md: every command of the guides that can run here runs, with small models."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shlex
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

import satchel
from exporter.test_export_prequantized_meta import write_quantized
from satchel.checkpoints import meta_config
from satchel.cli.main import main
from satchel.exporter import checkpoint as exporter
from satchel.sources import find_entry
from satchel.sources.pull import pull
from support.tiny_llm import write_tiny_llm
from support.tiny_models import tiny_model

PAGE = (Path(__file__).parents[1] / "docs" / "guides.md").read_text(encoding="utf-8")
# What a small model has fewer of, and ids that its vocabulary lacks.
SMALLER = {"--lora_rank 16": "--lora_rank 4", "128000": "1", "128009, 128001": "2"}
WHOLE = "stories110M.pt"  # of the exports for an NPU, the one that is not only planned
VISION = ("mv3", "resnet50", "vit", "swin_t")
VOCABULARY = 512
PARAMS = {"dim": 128, "n_layers": 2, "n_heads": 4, "vocab_size": VOCABULARY, "norm_eps": 1e-5}

LLAMA_YAML = """
base:
  metadata: '{"get_bos_id":1, "get_eos_ids":[2]}'
model: {use_sdpa_with_kv_cache: True, use_kv_cache: True, dtype_override: fp32}
quantization: {qmode: 8da4w, group_size: 128, embedding_quantize: "4,32"}
backend: {xnnpack: {enabled: True, extended_ops: True}}
"""
PHI_YAML = """
base: {model_class: phi_4_mini}
model: {use_kv_cache: True, use_sdpa_with_kv_cache: True, dtype_override: fp32}
backend: {xnnpack: {enabled: True}}
"""
EXECU_CHAT_YAML = """
base:
metadata: '{"get_bos_id": 1, "get_eos_ids":[2]}'
model:
use_kv_cache: True
use_sdpa_with_kv_cache: True
dtype_override: fp32
quantization:
qmode: 8da4w
export:
max_seq_length: 1024
max_context_length: 2048
backend:
xnnpack:
enabled: True
extended_ops: True
"""  # without indentation, as its page shows it


def rows() -> list[tuple[str, str]]:
    """The commands that are ours, and what they print."""
    found = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) != 3 or cells[0] == "theirs":
            continue
        command = re.search(r"`(satchel [^`]+)`", cells[1])
        if command and "FILE" not in command[1]:
            found.append((command[1], cells[2].strip(" |").strip("`")))
    return found


def llama_state() -> dict[str, torch.Tensor]:
    """The weights of two layers under Meta's names."""
    generator = torch.Generator().manual_seed(1)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    state = {"tok_embeddings.weight": weight(VOCABULARY, 128), "norm.weight": torch.ones(128)}
    for layer in range(2):
        name = f"layers.{layer}"
        for norm in ("attention_norm", "ffn_norm"):
            state[f"{name}.{norm}.weight"] = torch.ones(128)
        for part in ("wq", "wk", "wv", "wo"):
            state[f"{name}.attention.{part}.weight"] = weight(128, 128)
        for part, shape in {"w1": (256, 128), "w2": (128, 256), "w3": (256, 128)}.items():
            state[f"{name}.feed_forward.{part}.weight"] = weight(*shape)
    return state


def write_llama(folder: Path, trained: str = "") -> None:
    """Meta's files, or (``trained``) a checkpoint of llama2.c's training of that name."""
    state = llama_state()
    folder.mkdir(exist_ok=True)
    (folder / "params.json").write_text(json.dumps(PARAMS))
    write_ranks(folder / "tokenizer.model")
    if trained:
        saved = {"model": OrderedDict(state), "model_args": PARAMS | {"max_seq_len": 256}}
        torch.save(saved | {"best_val_loss": torch.tensor(1.0), "iter_num": 3}, folder / trained)
    else:
        torch.save(state, folder / "consolidated.00.pth")


def write_converted(folder: Path) -> None:
    """What the paper's convert_weights makes of Qwen3 and of Phi-4-mini."""
    folder.mkdir()
    state = llama_state()
    state["output.weight"] = state["tok_embeddings.weight"]
    torch.save(state, folder / "phi4_mini_meta.pth")
    converted = PARAMS | {"n_kv_heads": 4, "use_hf_rope": True, "attention_qkv_bias": False}
    (folder / "phi4.json").write_text(json.dumps(converted | {"partial_rotary_factor": 0.75}))
    norms = [f"layers.{n}.attention.{part}_norm_fn.weight" for n in range(2) for part in "qk"]
    torch.save(state | {n: torch.ones(32) for n in norms}, folder / "qwen3_0_6b_meta.pth")
    (folder / "0_6b_config.json").write_text(
        json.dumps(converted | {"head_dim": 32, "use_qk_norm": True, "rope_theta": 1000000.0})
    )


def write_ranks(path: Path) -> None:
    """Llama 3's form of tokenizer.model, in which every byte is a token."""
    lines = (f"{base64.b64encode(bytes([n])).decode()} {n}\n" for n in range(256))
    path.write_text("".join(lines))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the commands name."""
    folder = tmp_path_factory.mktemp("guides")
    write_llama(folder / "original")
    write_llama(folder, trained="stories110M.pt")
    write_converted(folder / "hf_checkpoints")
    write_quantized(folder / "qlora", tiny_model("llama", vocab_size=VOCABULARY, head_dim=16))
    (folder / "qlora" / "tokenizer.json").unlink(missing_ok=True)
    write_ranks(folder / "qlora" / "tokenizer.model")
    (folder / "llama_xnnpack.yaml").write_text(LLAMA_YAML)
    (folder / "qwen3_xnnpack_q8da4w.yaml").write_text(LLAMA_YAML)
    (folder / "phi_4_mini_xnnpack.yaml").write_text(PHI_YAML)
    (folder / "qwen3_4b8da4w.yaml").write_text(EXECU_CHAT_YAML)
    paragraph = "Ships that are packed once can be carried to any harbour of the world. " * 3
    (folder / "wiki.txt").write_text("\n\n".join([paragraph] * 4))
    (folder / "artifacts").mkdir()
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
    satchel.export(module, (torch.zeros(1, 3, 2, 2),), folder / "artifacts" / "classifier.satchel")
    changes = {"hidden_size": 128, "intermediate_size": 256, "max_position_embeddings": 4096}
    write_tiny_llm(folder / "stand-in", **changes)
    return folder


def pattern_of(printed: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, " ".join(printed.split()).split("…"))))


def prepared(command: str) -> tuple[list[str], bool]:
    """The words to run here, and whether they do all that the command does."""
    for real, small in SMALLER.items():
        command = command.replace(real, small)
    words = shlex.split(command)[1:]
    if words[0] != "export":
        return words, True
    vision, npu = words[1] in VISION, "qnn:" in command
    if vision:
        words.append("--random-weights")
    if (npu and WHOLE not in command) or vision:
        return [*words, "--plan"], False
    return words, True


def missing(command: str) -> str:
    """A package that a command needs and that is not installed."""
    needed = ["onnxruntime_qnn"] if "qnn:" in command or "stories.satchel" in command else []
    needed += ["coremltools"] if "coreml" in command else []
    needed += ["torchvision"] if shlex.split(command)[2] in VISION else []
    return next((name for name in needed if not importlib.util.find_spec(name)), "")


def test_the_commands_of_the_guides_run(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def small(source: Any, *rest: Any) -> Path:
        """Models with a name are these two layers, and nothing is fetched."""
        if Path(source).exists():
            return pull(source, *rest)
        find_entry(str(source))
        return workplace / "stand-in"

    monkeypatch.setattr(exporter, "pull", small)
    monkeypatch.setattr(meta_config, "PHI4_MINI", PARAMS | {"n_kv_heads": 4})
    monkeypatch.setenv("SATCHEL_CACHE", str(workplace / "cache"))
    monkeypatch.chdir(workplace)
    commands = rows()
    assert len(commands) >= 30
    ran = 0
    for command, printed in commands:
        if missing(command):
            continue
        words, whole = prepared(command)
        capsys.readouterr()
        status = main(words)
        out, err = capsys.readouterr()
        assert status == 0, f"{command}: {err}"
        if whole:
            assert pattern_of(printed).fullmatch(" ".join(out.split())), (command, printed, out)
        ran += 1
    assert ran > 15


def test_every_name_of_the_qualcomm_guide_is_on_the_page() -> None:
    for name in ("gemma3-1b", "glm-1_5b", "qwen2_5-1_5b", "smollm3-3b", "codegen2_1b"):
        assert f"{name}" in PAGE and find_entry(name)
