"""LLaVA-NeXT and OneVision against transformers: tiles, what is seen of them, and answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlavaNextImageProcessorPil, LlavaOnevisionImageProcessorPil
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

import satchel
from satchel.errors import CheckpointError, ProgramFormatError
from satchel.vision_language.encoder import clip
from satchel.vision_language.grid import GridPreprocessing
from satchel.vision_language.preprocess import Frames
from satchel.vision_language.shown import Shown
from support.tiny_llava import GRIDS, PATCH, ROWS, SIZE, processor, tiny_llava
from vision_language.test_llava import photo

PROCESSORS = {
    "llava_next": LlavaNextImageProcessorPil,
    "llava_onevision": LlavaOnevisionImageProcessorPil,
}
# Wide, high, tiny, square and in no proportion.
SIZES = [(60, 40), (33, 90), (9, 8), (200, 200), (500, 37), (61, 500), (28, 28)]
TOWER = {"image_size": SIZE, "patch_size": PATCH, "hidden_size": 32, "num_attention_heads": 4}


def grid(family: str) -> GridPreprocessing:
    ratio = {"vision_aspect_ratio": "anyres_max_4"} if family == "llava_onevision" else {}
    config = {"image_grid_pinpoints": GRIDS, **ratio}
    return GridPreprocessing.from_processor(processor(family), config, clip(TOWER, "v"))


@pytest.mark.parametrize("family", PROCESSORS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_tiles_are_the_processors(family: str, width: int, height: int) -> None:
    theirs = PROCESSORS[family](**processor(family))
    for mode in ("RGB", "L", "RGBA"):
        image = photo(width, height, mode=mode)
        wanted = theirs(image, return_tensors="np").pixel_values[0]
        made = np.stack(grid(family).frames(image).pixels).transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(made, wanted)


def test_several_images_are_the_processors() -> None:
    theirs = LlavaOnevisionImageProcessorPil(**processor("llava_onevision"))
    images = [photo(*size, seed) for seed, size in enumerate(SIZES)]
    wanted = theirs([images], return_tensors="np").pixel_values
    for image, pixels in zip(images, wanted, strict=True):
        (made,) = grid("llava_onevision").frames(image, len(images)).pixels
        np.testing.assert_array_equal(made.transpose(2, 0, 1), pixels[0])


@pytest.mark.parametrize("family", PROCESSORS)
def test_an_image_takes_as_many_tokens_as_the_processor_says(family: str) -> None:
    """Also in the published sizes, for 300 shapes of images."""
    rng = np.random.default_rng(0)
    if family == "llava_next":
        images = LlavaNextImageProcessorPil(size={"shortest_edge": 336})
        side, options = 24, {"patch_size": 14, "vision_feature_select_strategy": "default"}
        theirs: Any = object.__new__(LlavaNextProcessor)
        vars(theirs).update(image_processor=images, num_additional_image_tokens=1, **options)
        most = None
    else:
        images = LlavaOnevisionImageProcessorPil()
        side, most = 27, 9
        theirs = object.__new__(LlavaOnevisionProcessor)
        vars(theirs).update(image_processor=images, num_image_tokens=729)
        theirs.vision_aspect_ratio = "anyres_max_9"
    tile = 336 if family == "llava_next" else 384
    grids = tuple((h, w) for h, w in images.image_grid_pinpoints)
    ours = GridPreprocessing(tile, side, grids, most)
    for _ in range(300):
        height, width = (int(n) for n in np.exp(rng.uniform(2.5, 8.3, 2)))
        wanted = theirs._get_number_of_features(height, width, tile, tile)
        wanted -= family == "llava_next"  # the row of CLIP's own, which "default" leaves out
        rows, columns = ours._grid(height, width)
        frames = Frames([], rows, columns, (height, width))
        (view,) = ours.views(frames, side * side)
        assert view.count == wanted, (height, width)


@pytest.mark.parametrize("family", PROCESSORS)
def test_answers_are_transformers(family: str, tmp_path: Path) -> None:
    model, checkpoint = tiny_llava(tmp_path, family=family)
    path = satchel.export(checkpoint, tmp_path / "p.satchel", recipe="fp32", context=512)
    llm = satchel.LLM(path, threads=1)
    mark = llm.pictures.token
    theirs = PROCESSORS[family](**processor(family))
    cases: list[tuple[str, list[Any]]] = [
        ("<image>What is this?", [photo(60, 40)]),
        ("Say: <image>", [photo(200, 200, 2)]),
        ("One <image> and two <image>, which?", [photo(33, 90, 3), photo(61, 500, 4)]),
    ]
    for prompt, images in cases:
        given = theirs([images] if len(images) > 1 else images, return_tensors="pt")
        with torch.no_grad():
            features = model.model.get_image_features(**given)
        features = [f.numpy() for f in getattr(features, "pooler_output", features)]
        tokens, shown = llm.pictures.tokens(prompt, images, None)
        assert isinstance(shown, Shown)
        for numbers, wanted in zip(shown.numbers, features, strict=True):
            np.testing.assert_allclose(shown.rows(numbers), wanted, atol=1e-4, rtol=1e-4)
        made = llm.generate(prompt, raw=True, images=images, max_new_tokens=6, temperature=0)
        answer = made.finish().tokens
        ids = [mark if token < 0 else token for token in tokens]
        with torch.no_grad():
            out = model(input_ids=torch.tensor([[*ids, *answer]]), **given).logits[0]
        assert answer == out[len(ids) - 1 : len(ids) - 1 + len(answer)].argmax(-1).tolist()
    assert len(shown.numbers[0]) == ROWS + 1 or family == "llava_next"


def test_what_does_not_fit_is_told() -> None:
    encoder = clip(TOWER, "v")
    config = {"image_grid_pinpoints": GRIDS}
    with pytest.raises(CheckpointError, match="do_resize is false"):
        GridPreprocessing.from_processor({"do_resize": False}, config, encoder)
    with pytest.raises(CheckpointError, match="tiles of 30"):
        GridPreprocessing.from_processor({"size": {"height": 30}}, config, encoder)
    with pytest.raises(CheckpointError, match="no image_grid_pinpoints"):
        GridPreprocessing.from_processor({}, {}, encoder)
    good = grid("llava_onevision").to_dict()
    assert GridPreprocessing.from_dict(json.loads(json.dumps(good))) == grid("llava_onevision")
    for wrong in ({"grids": [[29, 28]]}, {"grids": []}, {"most": 0}, {"std": [0, 1, 1]}):
        with pytest.raises(ProgramFormatError):
            GridPreprocessing.from_dict({**good, **wrong})
    with pytest.raises(ProgramFormatError, match="damaged"):
        GridPreprocessing.from_dict({"tile": 3})
