"""satchel-run --image beside Python: the same prompts, tokens and texts about pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import satchel
from native.conftest import Runner
from support import program_file as fm
from support.tiny_llava import ROWS, SIZE, tiny_llava
from support.tiny_smolvlm import tiny_smolvlm
from vision_language.test_llava import photo

RunJson = Callable[..., dict[str, Any]]

FAMILIES = ("llava", "llava_next", "llava_onevision", "idefics3", "smolvlm")
# Writes marks where parts of a message say that there is an image; drops texts that are no parts.
PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for c in m.content %}{% if c['type'] == 'image' %}"
    "<image>{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}\n{% endfor %}"
    "assistant:"
)
TEXTS = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}assistant:"


def export_seeing(folder: Path, family: str, template: str, **options: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tiles = family in ("idefics3", "smolvlm")
    _, checkpoint = tiny_smolvlm(folder, family) if tiles else tiny_llava(folder, family=family)
    settings = {"bos_token": "<s>", "eos_token": "<|end|>", "chat_template": template}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    context = 1024 if tiles else 512
    options = {"recipe": "fp32", "context": context, "prefill_ar_len": 128, **options}
    return satchel.export(checkpoint, folder / f"{family}.satchel", **options)


@pytest.fixture(scope="module", params=FAMILIES)
def sees(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, satchel.LLM]:
    parts = request.param in ("llava_onevision", "smolvlm")
    folder = tmp_path_factory.mktemp(request.param)
    path = export_seeing(folder, request.param, PARTS if parts else TEXTS)
    return path, satchel.LLM(path, threads=2)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_seeing(tmp_path_factory.mktemp("look"), "llava", TEXTS, context=256)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wide, high, small, grey, in no proportion; PNG and JPEG."""
    folder = tmp_path_factory.mktemp("photos")
    kinds = [("a.png", 60, 40, "RGB"), ("b.jpg", 33, 90, "RGB"), ("c.png", 9, 8, "RGBA")]
    kinds += [("d.jpg", 200, 200, "L"), ("e.png", 500, 37, "L"), ("f.jpg", 28, 28, "RGB")]
    for seed, (name, width, height, mode) in enumerate(kinds):
        photo(width, height, seed, mode).save(folder / name)
    return sorted(folder.iterdir())


def agree(
    llm: satchel.LLM, path: Path, run_json: RunJson, text: str, images: list[Path], **options: Any
) -> dict[str, Any]:
    options = {"max_new_tokens": 8, **options}
    wanted = llm.generate(text, images=images, **options).finish()
    flags: list[object] = [part for image in images for part in ("--image", image)]
    for name, value in options.items():
        flags += ["--raw"] * value if name == "raw" else [f"--{name.replace('_', '-')}", value]
    found = run_json("run", path, "--prompt", text, "--threads", 2, *flags)
    assert found["prompt_tokens"] == wanted.stats.prompt_tokens
    assert found["tokens"] == wanted.tokens
    assert found["text"] == wanted.text and found["stop_reason"] == wanted.stop_reason
    assert found["lookahead"]["mode"] == "off"
    return found


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "chat"])
def test_texts_are_pythons(
    raw: bool, sees: tuple[Path, satchel.LLM], photos: list[Path], run_json: RunJson
) -> None:
    path, llm = sees
    for image in photos:
        agree(llm, path, run_json, "What is this?", [image], raw=raw)
    # Several, and one of them twice; where the text says, and penalties that look at words alone.
    several = [photos[0], photos[1], photos[0]]
    agree(llm, path, run_json, "Which of these?", several, raw=raw)
    marks = "First <image>, then <image> and <image>: which?"
    agree(llm, path, run_json, marks, several, raw=raw, repetition_penalty=1.3)
    agree(llm, path, run_json, "Say", photos[2:3], raw=raw, temperature=0.9, seed=3)


def test_system_messages(
    sees: tuple[Path, satchel.LLM], photos: list[Path], run_json: RunJson
) -> None:
    path, llm = sees
    agree(llm, path, run_json, "What is it?", photos[:1], system="Be brief.")
    agree(llm, path, run_json, "What was it?", photos[:1], system="You see <image>.")


def test_texts_alone_reach_templates_that_go_over_parts(
    sees: tuple[Path, satchel.LLM], run_json: RunJson
) -> None:
    path, llm = sees
    wanted = llm.generate("How are you?", max_new_tokens=6).finish()
    found = run_json("run", path, "How are you?", "--max-new-tokens", 6, "--threads", 2)
    assert found["prompt_tokens"] == wanted.stats.prompt_tokens
    assert found["tokens"] == wanted.tokens


@pytest.mark.parametrize("recipe", ["8da4w", "8a8w"])
def test_rounded_models(recipe: str, tmp_path: Path, photos: list[Path], run_json: RunJson) -> None:
    path = export_seeing(tmp_path, "smolvlm", PARTS, recipe=recipe)
    agree(satchel.LLM(path, threads=2), path, run_json, "What is this?", photos[:2])


def test_processors_of_other_kinds(tmp_path: Path, photos: list[Path], run_json: RunJson) -> None:
    """Both sides are given, or a square is made first; white shines through what is transparent."""
    clear = photo(50, 30, mode="RGB")
    clear.putalpha(photo(50, 30, 1, "L"))
    clear.save(tmp_path / "clear.png")
    sides = {"height": SIZE, "width": SIZE}
    for number, processor in enumerate(
        (
            {"image_processor_type": "SiglipImageProcessor", "size": sides},
            {"image_processor_type": "LlavaImageProcessor", "crop_size": sides, "do_pad": True},
        )
    ):
        folder = tmp_path / str(number)
        _, checkpoint = tiny_llava(folder)
        (checkpoint / "preprocessor_config.json").write_text(json.dumps(processor))
        path = satchel.export(checkpoint, folder / "a.satchel", recipe="fp32", context=256)
        llm = satchel.LLM(path, threads=2)
        for image in (*photos[:3], tmp_path / "clear.png"):
            agree(llm, path, run_json, "What is it?", [image], raw=True)


def test_very_long_pictures(tmp_path: Path, llava: Path, run_json: RunJson) -> None:
    """Of which the middle alone is resized: the rest would be 100 MB of pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 120_000, 3), dtype=np.uint8)
    llm = satchel.LLM(llava, threads=2)
    for turned in (pixels, pixels.transpose(1, 0, 2)):
        Image.fromarray(turned).save(tmp_path / "long.png")
        agree(llm, llava, run_json, "What is it?", [tmp_path / "long.png"])


def test_images_in_a_conversation(llava: Path, photos: list[Path], runner: Runner) -> None:
    llm = satchel.LLM(llava, threads=2)
    options: dict[str, Any] = {"sampling": llm.chat_sampling, "max_new_tokens": 4}
    messages = [{"role": "user", "content": "<image>\nWhat is it?"}]
    first = llm.generate(messages, images=photos[:1], **options).finish()
    messages += [{"role": "assistant", "content": first.text}]
    messages += [{"role": "user", "content": "<image>\nAnd this?"}]
    second = llm.generate(messages, images=photos[:2], **options).finish()
    messages += [{"role": "assistant", "content": second.text}]
    messages += [{"role": "user", "content": "Sure?"}]
    third = llm.generate(messages, images=photos[:2], **options).finish()
    typed = f"/image {photos[0]}\nWhat is it?\n/image {photos[0].parent / 'none.png'}\n"
    typed += f"/image {photos[1]}\nAnd this?\nSure?\n"
    talk = runner("chat", llava, "--max-new-tokens", 4, "--threads", 2, given=typed)
    assert talk.returncode == 0, talk.stderr
    assert talk.stdout == f"{first.text}\n{second.text}\n{third.text}\n"
    assert "none.png is not there. Give the path of an image." in talk.stderr
    assert talk.stderr.count("goes with your next message") == 2


def test_a_turn_that_fails_leaves_the_conversation_as_it_was(
    llava: Path, photos: list[Path], runner: Runner
) -> None:
    llm = satchel.LLM(llava, threads=2)
    options: dict[str, Any] = {"sampling": llm.chat_sampling, "max_new_tokens": 4}
    messages = [{"role": "user", "content": "<image>\nWhat is it?"}]
    first = llm.generate(messages, images=photos[:1], **options).finish()
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "So?"}]
    second = llm.generate(messages, images=photos[:1], **options).finish()
    typed = f"/image {photos[0]}\nWhat is it?\nNo <image> here\nSo?\n"
    talk = runner("chat", llava, "--max-new-tokens", 4, "--threads", 2, given=typed)
    assert "the prompt has 2 places for 1 images" in talk.stderr
    assert talk.stdout == f"{first.text}\n{second.text}\n"


def test_what_is_wrong_is_told(
    llava: Path, program: Path, photos: list[Path], tmp_path: Path, runner: Runner
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    (tmp_path / "cut.jpg").write_bytes(photos[1].read_bytes()[:300])
    ask = ("--prompt", "What is it?", "--max-new-tokens", 2)
    many = [part for _ in range(256 // ROWS) for part in ("--image", photos[0])]
    for arguments, message in (
        ((llava, *ask, "--image", tmp_path / "none.png"), "none.png is not there"),
        ((llava, *ask, "--image", tmp_path), "is not there"),
        ((llava, *ask, "--image", tmp_path / "bad.png"), "is not an image that can be read"),
        ((llava, *ask, "--image", tmp_path / "cut.jpg"), "is not an image that can be read"),
        ((program, *ask, "--image", photos[0]), "does not look at images"),
        ((llava, *ask, *many), "the images take 256 tokens, and the context has 256"),
        ((llava, "<image> <image>", "--image", photos[0]), "2 places for 1 images. Write <image>"),
        ((llava, "", "--image", photos[0]), "the prompt is empty"),
        ((llava, *ask, "--image", photos[0], "--on-context-full", "slide"), "cannot slide"),
        ((llava, "word " * 250, "--image", photos[0]), "tokens, and the context 256"),
    ):
        done = runner("run", *arguments)
        assert done.returncode == 1 and message in done.stderr, (message, done.stderr)
    assert runner("chat", llava, "--image", photos[0]).returncode == 2
    talk = runner("chat", program, given=f"/image {photos[0]}\n")
    assert talk.returncode == 0 and "does not look at images" in talk.stderr


DAMAGE: dict[str, list[dict[str, Any]]] = {
    "llava": [
        {"token": -1},
        {"token": 1 << 40},
        {"token": None},
        {"rows": 0},
        {"rows": ROWS + 1},
        {"rows": 1 << 62},
        {"kind": 5},
        {"kind": "eyes"},
        {"preprocessing": None},
        {"preprocessing.resize": 0},
        {"preprocessing.resize": 1 << 60},
        {"preprocessing.resize": [28]},
        {"preprocessing.square": 1},
        {"preprocessing.crop": [28]},
        {"preprocessing.crop": [56, 56]},
        {"preprocessing.mean": [0, 0]},
        {"preprocessing.std": [0, 1, 1]},
        {"preprocessing.resample": 9},
        {"preprocessing.resample": 4},
    ],
    "smolvlm": [
        {"preprocessing.tile": 1},
        {"preprocessing.longest": -5},
        {"preprocessing.longest": 1 << 20},
        {"preprocessing.split": "yes"},
    ],
    "llava_onevision": [
        {"preprocessing.grids": []},
        {"preprocessing.grids": [[28]]},
        {"preprocessing.grids": [[29, 28]]},
        {"preprocessing.grids": [[28 * 65, 28]]},
        {"preprocessing.most": 0},
        {"preprocessing.side": 3},
        {"preprocessing.tile": 0},
    ],
}


def with_images(program: bytes, place: list[str], value: Any) -> bytes:
    """A program that says something else of its images."""
    model = fm.read(program)
    metadata = json.loads(model.metadata)
    about = metadata["images"]
    for name in place[:-1]:
        about = about[name]
    about[place[-1]] = value
    model.metadata = json.dumps(metadata).encode()
    return fm.write(model)


@pytest.mark.parametrize("family", DAMAGE)
def test_damaged_descriptions(
    family: str, tmp_path: Path, photos: list[Path], runner: Runner
) -> None:
    """What a file says of its images is checked against itself and the method that sees."""
    path = export_seeing(tmp_path, family, TEXTS)
    whole = path.read_bytes()
    for change in DAMAGE[family]:
        ((name, value),) = change.items()
        damaged = tmp_path / "damaged.satchel"
        damaged.write_bytes(with_images(whole, name.split("."), value))
        done = runner("run", damaged, "What?", "--image", photos[0], "--max-new-tokens", 1)
        assert done.returncode == 1, (change, done.stdout, done.stderr)
        assert any(w in done.stderr for w in ("damaged", "not known here", "not resized")), change
