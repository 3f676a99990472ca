"""LLaVA against transformers: images as the processor prepares them, what is seen, and logits."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPImageProcessorPil, LlavaImageProcessorPil, SiglipImageProcessorPil

import satchel
from satchel.backends import find_targets
from satchel.cli.conversation import Conversation
from satchel.cli.main import main
from satchel.errors import CheckpointError, ConfigError, InputError
from satchel.exporter import ExportOptions, prepare_export
from satchel.remarks import Remark
from satchel.vision_language.pictures import read_picture
from satchel.vision_language.preprocess import ClipPreprocessing
from support.tiny_llava import ROWS, SIZE, tiny_llava


def photo(width: int, height: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Smooth colours and some noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = rng.integers(-20, 20, (height, width, 3))
    pixels = np.clip(np.asarray(smooth).astype(int) + noise, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("size", [28, 336])
@pytest.mark.parametrize(
    ("width", "height"), [(640, 480), (481, 640), (333, 337), (20, 21), (1000, 37), (336, 336)]
)
def test_preprocessing_is_the_processors(size: int, width: int, height: int) -> None:
    theirs = CLIPImageProcessorPil(
        size={"shortest_edge": size}, crop_size={"height": size, "width": size}
    )
    ours = ClipPreprocessing.from_processor(json.loads(theirs.to_json_string()), size)
    for mode in ("RGB", "L", "RGBA"):
        image = photo(width, height, mode=mode)
        wanted = theirs(image, return_tensors="np").pixel_values[0].transpose(1, 2, 0)
        np.testing.assert_array_equal(ours.prepare(image), wanted)


PLACES = [(64, 48), (47, 64), (20, 21), (1, 1), (300, 9)]  # width, height


@pytest.mark.parametrize(("width", "height"), PLACES)
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_white_shines_through_what_is_transparent(mode: str, width: int, height: int) -> None:
    """Also where a palette, or one colour, says what that is."""
    theirs = CLIPImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}
    )
    ours = ClipPreprocessing.from_processor(json.loads(theirs.to_json_string()), 28)
    image = photo(width, height, mode="L" if mode == "LA" else "RGB").convert(mode)
    if mode.endswith("A"):
        image.putalpha(photo(width, height, 1, "L"))
        file = io.BytesIO()
        image.save(file, "PNG")
    else:
        seen = image.getpixel((0, 0))
        file = io.BytesIO()
        image.save(file, "PNG", transparency=seen)
    opened = read_picture(file.getvalue())
    wanted = theirs(opened, return_tensors="np").pixel_values[0].transpose(1, 2, 0)
    np.testing.assert_array_equal(ours.prepare(opened), wanted)


@pytest.mark.parametrize(("width", "height"), PLACES)
def test_sides_that_are_given_and_squares(width: int, height: int) -> None:
    """As SigLIP's processor has them, which LLaVA on Qwen2 comes with, and LLaVA's own."""
    sides = {"height": 28, "width": 28}
    theirs: list[Any] = [SiglipImageProcessorPil(size=sides)]
    theirs.append(LlavaImageProcessorPil(size={"shortest_edge": 28}, crop_size=sides, do_pad=True))
    theirs.append(CLIPImageProcessorPil(size={"height": 40, "width": 36}, crop_size=sides))
    theirs.append(CLIPImageProcessorPil(size=28, crop_size=28))
    theirs.append(CLIPImageProcessorPil(size=sides, do_center_crop=False))
    for processor in theirs:
        ours = ClipPreprocessing.from_processor(json.loads(processor.to_json_string()), 28)
        ours = ClipPreprocessing.from_dict(json.loads(json.dumps(ours.to_dict())))
        image = photo(width, height)
        wanted = processor(image, return_tensors="np").pixel_values[0].transpose(1, 2, 0)
        np.testing.assert_array_equal(ours.prepare(image), wanted)


def test_processors_that_are_not_as_the_model_wants() -> None:
    for fields, message in (
        ({"do_normalize": False}, "do_normalize is false"),
        ({"rescale_factor": 1.0}, "rescale_factor is 1.0"),
        ({"do_center_crop": False}, "cuts out the whole"),
        ({"crop_size": {"height": 30, "width": 28}}, r"cuts out \(30, 28\)"),
        ({"size": "large"}, "size is 'large'"),
        ({"size": {"shortest_edge": "28"}}, "size is {'shortest_edge': '28'}"),
    ):
        with pytest.raises(CheckpointError, match=message):
            ClipPreprocessing.from_processor({"size": {"shortest_edge": 28}, **fields}, 28)
    # Without any, towers are seen through the processor that they were published with.
    assert ClipPreprocessing.from_processor({}, 28).resize == 28
    assert ClipPreprocessing.from_processor({}, 28, is_clip=False).resize == (28, 28)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, satchel.LLM]:
    folder = tmp_path_factory.mktemp("llava")
    model, checkpoint = tiny_llava(folder)
    path = satchel.export(checkpoint, folder / "llava.satchel", recipe="fp32", context=256)
    return model, path, satchel.LLM(path, threads=1)


def test_memory_for_a_long_image_is_that_of_its_middle() -> None:
    """Scaled as a whole, this one would have 5.6 billion pixels."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = ClipPreprocessing(336, (336, 336)).prepare(Image.new("RGB", (50_000, 1), "red"))
    assert seen.shape == (336, 336, 3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    with pytest.raises(InputError, match="50000 by 50000 pixels on its way"):
        ClipPreprocessing(336, (336, 336), square=True).prepare(Image.new("RGB", (50_000, 1)))


def test_how_images_are_prepared_may_lie_in_processor_config(tmp_path: Path) -> None:
    """Where transformers 5 writes it; it goes before the older file."""
    _, checkpoint = tiny_llava(tmp_path)
    older = checkpoint / "preprocessor_config.json"
    sides = {"height": SIZE, "width": SIZE}
    inner = {"image_processor_type": "SiglipImageProcessor", "size": sides, "image_mean": [0.5] * 3}
    newer = checkpoint / "processor_config.json"
    for whole, wanted in (
        ({"processor_class": "LlavaProcessor", "patch_size": 7}, SIZE),
        ({"processor_class": "LlavaProcessor", "image_processor": inner}, [SIZE, SIZE]),
    ):
        newer.write_text(json.dumps(whole))
        path = satchel.export(checkpoint, tmp_path / "a.satchel", overwrite=True, recipe="fp32")
        about = satchel.load(path).metadata["images"]["preprocessing"]
        assert about["resize"] == wanted
    assert about["mean"] == [0.5] * 3
    newer.unlink()
    older.unlink()
    with pytest.warns(Remark, match="has no preprocessor_config.json"):
        satchel.export(checkpoint, tmp_path / "b.satchel", recipe="fp32")


def pixels_of(*images: Image.Image) -> torch.Tensor:
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
    )
    return torch.from_numpy(processor(list(images), return_tensors="np").pixel_values)


def test_what_is_seen_is_transformers(llava: tuple[Any, Path, satchel.LLM]) -> None:
    model, _, llm = llava
    for seed, size in ((0, (40, 30)), (1, (28, 90))):
        image = photo(*size, seed)
        with torch.no_grad():
            wanted = model.model.get_image_features(pixels_of(image))
        wanted = getattr(wanted, "pooler_output", wanted)[0].reshape(ROWS, -1).numpy()
        np.testing.assert_allclose(
            llm.pictures.rows(llm.pictures.frames(image).pixels[0]), wanted, atol=1e-4, rtol=1e-4
        )


def their_answer(model: Any, tokens: list[int], images: list[Image.Image], count: int) -> list[int]:
    """Greedy, with the mark of an image repeated for each of its rows."""
    mark = model.config.image_token_index
    ids = [t for token in tokens for t in ([mark] * ROWS if token == mark else [token])]
    answer: list[int] = []
    with torch.no_grad():
        for _ in range(count):
            given = torch.tensor([[*ids, *answer]])
            logits = model(input_ids=given, pixel_values=pixels_of(*images)).logits[0, -1]
            answer.append(int(logits.argmax()))
    return answer


def test_answers_are_transformers(llava: tuple[Any, Path, satchel.LLM]) -> None:
    model, _, llm = llava
    cases = [
        ("<image>\nWhat is this?", [photo(40, 30)]),
        ("First <image> and then <image>: which?", [photo(40, 30), photo(33, 50, 5)]),
    ]
    for prompt, images in cases:
        made = llm.generate(prompt, raw=True, images=images, max_new_tokens=6, temperature=0)
        tokens = llm.tokenizer.encode(prompt)
        assert made.finish().tokens == their_answer(model, tokens, images, len(made.tokens))


def test_the_same_image_is_read_once(llava: tuple[Any, Path, satchel.LLM]) -> None:
    _, path, _ = llava
    llm = satchel.LLM(path, threads=1)
    image = photo(40, 30)
    first = llm.generate("What is it?", raw=True, images=[image], max_new_tokens=4).finish()
    again = llm.generate("What is that?", raw=True, images=[image], max_new_tokens=4).finish()
    other = llm.generate("What is it?", raw=True, images=[photo(40, 30, 9)], max_new_tokens=4)
    # Text before the mark, the image, and the beginning of the question.
    assert again.stats.reused_tokens >= ROWS
    assert other.finish().stats.reused_tokens < first.stats.prompt_tokens
    alone = satchel.LLM(path, threads=1)
    fresh = alone.generate("What is that?", raw=True, images=[image], max_new_tokens=4).finish()
    assert fresh.tokens == again.tokens
    # Penalties look at the text alone.
    options = {"raw": True, "images": [image], "max_new_tokens": 4, "repetition_penalty": 1.3}
    assert llm.generate("What is it?", **options).finish().tokens


def test_penalties_count_the_answer_behind_an_image(llava: tuple[Any, Path, satchel.LLM]) -> None:
    _, _, llm = llava
    options: dict[str, Any] = {"raw": True, "images": [photo(40, 30)], "max_new_tokens": 10}
    made = llm.generate("What is it?", presence_penalty=2, temperature=0, **options).finish()
    record: list[int] = []
    session = llm.sessions.first
    tokens, shown = llm.pictures.tokens("<image>\nWhat is it?", options["images"], None)
    session.rewind(0)
    session.show(shown)
    logits = session.feed(tokens).copy()
    while len(record) < len(made.tokens):
        logits[list(set(record))] -= 2
        record.append(int(logits.argmax()))
        logits = session.feed(record[-1:]).copy()
    session.show(None)
    assert made.tokens == record


def test_recipes_keep_what_sees_in_8_bits(tmp_path: Path) -> None:
    _, checkpoint = tiny_llava(tmp_path)
    path = satchel.export(checkpoint, tmp_path / "q.satchel", recipe="8da4w", context=256)
    llm = satchel.LLM(path, threads=1)
    kinds = {w["name"]: w["encoding"] for w in llm.program.weights}
    assert kinds["vision_tower.encoder.layers.0.mlp.fc1.weight"] == "matrix_q8"
    assert kinds["model.layers.0.mlp.up_proj.weight"].startswith("matrix_q4")
    assert llm.generate("Hi", images=[photo(30, 30)], raw=True, max_new_tokens=3).finish().tokens


def test_the_command(
    llava: tuple[Any, Path, satchel.LLM], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, path, llm = llava
    photo(50, 40).save(tmp_path / "photo.png")
    call = ["run", str(path), "--prompt", "What is it?", "--raw", "--temperature", "0"]
    call += ["--max-new-tokens", "4", "--threads", "1", "--json"]
    assert main([*call, "--image", str(tmp_path / "photo.png")]) == 0
    told = json.loads(capsys.readouterr().out)
    options: dict[str, Any] = {"max_new_tokens": 4, "temperature": 0}
    wanted = llm.generate("What is it?", raw=True, images=[tmp_path / "photo.png"], **options)
    assert told["tokens"] == wanted.finish().tokens
    assert told["prompt_tokens"] > ROWS
    assert main([*call, "--image", str(tmp_path / "none.png")]) == 1
    assert "is not there" in capsys.readouterr().err
    (tmp_path / "bad.png").write_bytes(b"no image")
    assert main([*call, "--image", str(tmp_path / "bad.png")]) == 1
    assert "not an image that can be read" in capsys.readouterr().err


def test_images_in_a_conversation(
    llava: tuple[Any, Path, satchel.LLM],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, path, _ = llava
    llm = satchel.LLM(path, threads=1)
    llm.use_chat_template(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}assistant:"
    )
    photo(50, 40).save(tmp_path / "a.png")
    options = {"max_new_tokens": 3, "temperature": 0, "on_context_full": "slide"}
    talk = Conversation(llm, None, {"sampling": llm.chat_sampling, **options})
    talk.take(f"/image {tmp_path / 'none.png'}")
    assert "is not there" in capsys.readouterr().err
    talk.take(f"/image {tmp_path / 'a.png'}")
    talk.take("What is it?")
    first = talk.messages[-1]["content"]
    wanted = llm.generate(
        "What is it?", images=[tmp_path / "a.png"], max_new_tokens=3, temperature=0
    ).finish()
    assert wanted.text == first
    alone = llm.generate("What is it?", images=tmp_path / "a.png", max_new_tokens=1, temperature=0)
    assert alone.finish().stats.prompt_tokens == wanted.stats.prompt_tokens
    # Names as a terminal writes them that a file is dragged into.
    photo(50, 40).save(tmp_path / "my own.png")
    own = str(tmp_path / "my own.png")
    for name in (own, f"'{own}'", f'"{own}"', own.replace(" ", "\\ ")):
        other = Conversation(llm, None, {"sampling": llm.chat_sampling, **options})
        other.take(f"/image {name}")
        assert "my own.png goes with your next message" in capsys.readouterr().err
    # The image stays in the conversation, is read once, and goes with its message.
    talk.take("And now?")
    assert talk._turns[-1].stats.reused_tokens >= ROWS
    talk.take(f"/save {tmp_path / 'talk.json'}")
    talk.take("/undo")
    talk.take("/undo")
    assert talk.messages == []
    talk.take(f"/load {tmp_path / 'talk.json'}")
    assert talk.messages[0]["images"] == [str(tmp_path / "a.png")]
    talk.take("/regen")
    assert talk._turns[-1].text == talk._turns[-2].text


def test_pictures_of_all_kinds(llava: tuple[Any, Path, satchel.LLM], tmp_path: Path) -> None:
    """Print colours, moving pictures, see-through and 16-bit ones: what Pillow shows of them."""
    _, _, llm = llava
    image, other = photo(60, 40), photo(60, 40, seed=1)
    grey = np.asarray(image.convert("L")).astype(np.uint16) * 257
    kinds: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "print.jpg": (image.convert("CMYK"), {}),
        "moving.gif": (image, {"save_all": True, "append_images": [other]}),
        "palette.png": (image.quantize(16), {"transparency": 3}),
        "deep.png": (Image.fromarray(grey), {}),
        "clear.webp": (photo(60, 40, mode="RGBA"), {}),
    }
    for name, (picture, options) in kinds.items():
        picture.save(tmp_path / name, **options)
        with Image.open(tmp_path / name) as read:
            first = image.convert("L") if name == "deep.png" else read.convert("RGB")
            wanted = llm.pictures.frames(first).pixels[0]
        for source in (tmp_path / name, (tmp_path / name).read_bytes()):
            found = llm.pictures.frames(source).pixels[0]
            np.testing.assert_array_equal(found, wanted, err_msg=name)
    heic = bytes(4) + b"ftypheic" + bytes(600)
    whole = (tmp_path / "clear.webp").read_bytes()
    for data in (b"", heic, whole[: len(whole) // 2], (tmp_path / "deep.png").read_bytes()[:200]):
        (tmp_path / "bad.jpg").write_bytes(data)
        for source in (tmp_path / "bad.jpg", data):
            with pytest.raises(InputError, match=r"not an image that can be read.*JPEG, PNG"):
                llm.pictures.frames(source)


def test_what_cannot_be_done_is_told(llava: tuple[Any, Path, satchel.LLM], tmp_path: Path) -> None:
    _, _, llm = llava
    image = photo(30, 30)
    with pytest.raises(ConfigError, match="1 places for 2 images"):
        llm.generate("<image> one", raw=True, images=[image, image])
    with pytest.raises(ConfigError, match="cannot slide"):
        llm.generate("one", raw=True, images=[image], on_context_full="slide")
    with pytest.raises(InputError, match="is no image"):
        llm.generate("one", raw=True, images=[5])
    with pytest.raises(InputError, match="is a folder"):
        llm.generate("one", raw=True, images=[tmp_path])
    with pytest.raises(InputError, match="cannot be opened .File name too long"):
        llm.generate("one", raw=True, images="a" * 5000)
    _, checkpoint = tiny_llava(tmp_path)
    config = json.loads((checkpoint / "config.json").read_text())
    config["vision_config"]["model_type"] = "vit"
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="seen by CLIP or SigLIP"):
        satchel.export(checkpoint, tmp_path / "x.satchel")
    with pytest.raises(CheckpointError, match="do_resize is false"):
        ClipPreprocessing.from_processor({"do_resize": False}, 28)


def test_programs_that_do_not_look_say_so(tmp_path: Path) -> None:
    from support.tiny_llm import write_tiny_llm

    path = satchel.export(write_tiny_llm(tmp_path / "a"), tmp_path / "a.satchel", context=64)
    with pytest.raises(ConfigError, match="does not look at images"):
        satchel.LLM(path, threads=1).generate("x", images=[photo(9, 9)])


def test_targets(llava: tuple[Any, Path, satchel.LLM], tmp_path: Path) -> None:
    """Those that cannot look say so."""
    _, checkpoint = tiny_llava(tmp_path)
    others = [(target, "hybrid") for target in ("qnn:SM8750", "coreml:iOS18", "executorch")]
    for target, mode in (*others, ("cpu", "kv")):
        named = rf"^{target} in {mode} mode does not run vision-language models"
        with pytest.raises(ConfigError, match=named):
            options = ExportOptions(target=find_targets(target), mode=mode)
            prepare_export(checkpoint, options)
