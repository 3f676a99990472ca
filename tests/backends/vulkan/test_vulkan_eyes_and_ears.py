"""Models that look and hear on a Vulkan device: the results of the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import satchel
from satchel.runtime.program import Program
from speech.test_whisper_graphs import TOKENS, mel_of, step
from support.tiny_llava import tiny_llava
from support.tiny_whisper import torch_model, write_huggingface
from vision_language.test_llava import photo


def test_llava(device: dict[str, Any], tmp_path: Path) -> None:
    _, checkpoint = tiny_llava(tmp_path, family="llava_onevision")
    found = []
    for target in ("cpu", "vulkan"):
        path = satchel.export(
            checkpoint, tmp_path / f"{target}.satchel", target=target, recipe="fp32", context=256
        )
        llm = satchel.LLM(path, threads=1)
        if target == "vulkan":
            parts = llm.session.instance.parts
            assert {part.executor for part in parts if part.method == "see"} == {"vulkan"}
        tokens, shown = llm.pictures.tokens("<image>and", [photo(40, 70)], None)
        session = llm.sessions.take(tokens)
        session.show(shown)
        found.append(session.feed(tokens))
    np.testing.assert_allclose(found[0], found[1], atol=1e-4, rtol=1e-4)


def test_whisper(device: dict[str, Any], tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "tiny", torch_model())
    mel, found = mel_of(torch_model()), []
    for target in ("cpu", "vulkan"):
        path = satchel.export(folder, tmp_path / f"{target}.satchel", target=target, recipe="fp32")
        instance = Program(path).instance(1)
        instance.method("encode")(mel)
        found.append(step(instance.method("decode"), TOKENS, 0, instance.open_sequence()))
        if target == "vulkan":
            assert "vulkan" in {part.executor for part in instance.parts}
    np.testing.assert_allclose(found[0], found[1], atol=1e-4, rtol=1e-4)
