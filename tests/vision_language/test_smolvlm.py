"""SmolVLM and Idefics3 against transformers: tiles, what is seen, prompts and answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Idefics3ImageProcessorPil, SmolVLMImageProcessorPil
from transformers.models.smolvlm import processing_smolvlm

import satchel
from satchel.vision_language.idefics3 import SIDES, TilePreprocessing
from support.tiny_smolvlm import ROWS, SIZE, tiny_smolvlm
from vision_language.test_llava import photo

PROCESSORS = {"smolvlm": SmolVLMImageProcessorPil, "idefics3": Idefics3ImageProcessorPil}


def processor(family: str, size: int, split: bool = True) -> Any:
    return PROCESSORS[family](
        size={"longest_edge": 4 * size},
        max_image_size={"longest_edge": size},
        do_image_splitting=split,
        return_row_col_info=True,
    )


@pytest.mark.parametrize("family", PROCESSORS)
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize(("width", "height"), [(640, 480), (300, 777), (90, 90), (1000, 37)])
def test_tiles_are_the_processors(family: str, split: bool, width: int, height: int) -> None:
    theirs = processor(family, 64, split)
    ours = TilePreprocessing.from_processor(json.loads(theirs.to_json_string()), 64)
    image = photo(width, height)
    wanted = theirs(image, return_tensors="np")
    frames = ours.frames(image)
    assert (frames.rows, frames.columns) == (wanted["rows"][0][0], wanted["cols"][0][0])
    made = np.stack(frames.pixels).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(made, wanted["pixel_values"][0])


def test_prompts_are_the_processors() -> None:
    ours = TilePreprocessing(4 * SIZE, SIZE)
    for size in ((640, 480), (20, 100), (30, 30)):
        frames = ours.frames(photo(*size))
        marks = ("<fake_token_around_image>", "<image>", "<global-img>")
        wanted = processing_smolvlm.get_image_prompt_string(frames.rows, frames.columns, 1, *marks)
        assert ours.text_of(frames, "<image>") == wanted


@pytest.mark.parametrize("side", SIDES)
def test_every_patch_has_its_own_place(side: int) -> None:
    """As the model's own code finds them, in torch."""
    bounds = torch.arange(1 / side, 1.0, 1 / side)
    at = torch.arange(side, dtype=torch.float32) * (1.0 / torch.tensor(side))
    found = torch.bucketize(torch.clamp(at, max=1 - 1e-6), bounds, right=True)
    assert found.tolist() == list(range(side))


@pytest.mark.parametrize("family", PROCESSORS)
def test_answers_are_transformers(family: str, tmp_path: Path) -> None:
    model, checkpoint = tiny_smolvlm(tmp_path, family)
    path = satchel.export(checkpoint, tmp_path / "smol.satchel", recipe="fp32", context=512)
    llm = satchel.LLM(path, threads=1)
    mark = model.config.image_token_id
    for prompt, images in (
        ("<image>What is this?", [photo(40, 30)]),
        ("One <image> and two <image>, which?", [photo(90, 30, 2), photo(30, 80, 3)]),
    ):
        seen = [llm.pictures.frames(image) for image in images]
        pixels = np.stack([p for frames in seen for p in frames.pixels]).transpose(0, 3, 1, 2)
        parts = prompt.split("<image>")
        marks = [llm.pictures.preprocessing.text_of(frames, "<image>") for frames in seen]
        text = "".join(a + b for a, b in zip(parts, [*marks, ""], strict=True))
        tokens = llm.tokenizer.encode(text)
        ids = [t for token in tokens for t in ([mark] * ROWS if token == mark else [token])]
        made = llm.generate(prompt, raw=True, images=images, max_new_tokens=5, temperature=0)
        answer = made.finish().tokens
        assert made.stats.prompt_tokens == len(ids)
        with torch.no_grad():
            out = model(
                input_ids=torch.tensor([[*ids, *answer]]),
                pixel_values=torch.from_numpy(pixels.copy())[None],
            ).logits[0]
        wanted = out[len(ids) - 1 : len(ids) - 1 + len(answer)].argmax(-1).tolist()
        assert answer == wanted
        rows = [llm.pictures.rows(p) for frames in seen for p in frames.pixels]
        with torch.no_grad():
            theirs = model.model.get_image_features(torch.from_numpy(pixels.copy())[None])
        theirs = getattr(theirs, "pooler_output", theirs)
        theirs = torch.cat(list(theirs)).reshape(len(rows), ROWS, -1).numpy()
        np.testing.assert_allclose(np.stack(rows), theirs, atol=1e-4, rtol=1e-4)
