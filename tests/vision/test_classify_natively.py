"""Classes of pictures without Python: satchel-run and the C API beside Python's commands."""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from native.conftest import DEVICE
from satchel.cli.main import main
from satchel.vision.classifier import Classifier

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="not built for Windows")
INVALID_IMAGE, MISUSE, IMPOSSIBLE = 13, 10, 4


@pytest.fixture(scope="module")
def photos(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNGs and JPEGs of several kinds, some of them in folders."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (37, 50, 3), np.uint8)
    noise[:, :, 1] //= 3
    image = Image.fromarray(noise)
    (folder / "b").mkdir()
    image.save(folder / "b" / "a.JPG", quality=80)
    image.save(folder / "b.jpeg", progressive=True)
    image.save(folder / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(folder / "turned.jpg", exif=exif)
    return folder


def run(*arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [str(DEVICE / "bin" / "satchel-run"), "run", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)


def both(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[Any, Any]:
    """What Python prints and what the runner does."""
    capsys.readouterr()
    assert main(["run", *map(str, arguments)]) == 0
    found = run(*arguments)
    assert found.returncode == 0, found.stderr
    return capsys.readouterr().out, found.stdout.decode()


def test_how_long_a_call_takes(capsys: pytest.CaptureFixture[str], colours: Path) -> None:
    """The same lines and fields as Python's, with other figures."""
    arguments = ["bench", str(colours), "--runs", "5", "--threads", "1"]
    for more in ([], ["--json"]):
        capsys.readouterr()
        assert main([*arguments, *more]) == 0
        wanted = capsys.readouterr().out
        command = [str(DEVICE / "bin" / "satchel-run"), *arguments, *more]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if more:
            ours, theirs = json.loads(found), json.loads(wanted)
            assert ours.keys() == theirs.keys() and len(ours["samples"]["latency_s"]) == 5
            same = ("arena_bytes", "checksum", "file_size_bytes", "kernels", "method", "runs")
            assert [ours[name] for name in same] == [theirs[name] for name in same]
            assert ours["fastest_s"] <= ours["median_s"] <= ours["p95_s"]
        else:
            assert re.sub(r"[\d.]+", "N", found) == re.sub(r"[\d.]+", "N", wanted)


def test_documents_and_lines_are_pythons(
    capsys: pytest.CaptureFixture[str], colours: Path, photos: Path, pictures: Path
) -> None:
    for inputs in (["--input", photos], ["--input", pictures / "red.png", "--top", 2]):
        wanted, found = both(capsys, colours, *inputs, "--json")
        assert json.loads(found) == json.loads(wanted)
        wanted, found = both(capsys, colours, *inputs)
        assert found == wanted
    results = json.loads(run(colours, "--input", photos, "--json").stdout)["results"]
    names = [Path(one["input"]).name for one in results]
    assert names == ["a.png", "a.JPG", "b.jpeg", "turned.jpg"]
    data = (pictures / "blue.png").read_bytes()
    piped = json.loads(run(colours, "--input", "-", "--json", given=data).stdout)
    assert piped["results"][0]["input"] == "standard input"
    assert piped["results"][0]["classes"][0]["label"] == "blue"
    timed = json.loads(
        run(colours, "--input", photos / "a.png", "--iterations", 3, "--json").stdout
    )
    assert 0 < timed["results"][0]["median_s"] < 10 and "mean_s" in timed["results"][0]


def test_what_cannot_be_read_is_said(colours: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("no picture")
    (tmp_path / "cut.png").write_bytes((photos / "a.png").read_bytes()[:300])
    (tmp_path / "empty").mkdir()
    for name, why in {
        "no.png": "is not an image that can be read. Give a PNG or a JPEG.",
        "cut.png": "is not an image that can be read: its data end too early",
        "empty": "has no images in it",
        "nowhere.png": "cannot open",
    }.items():
        done = run(colours, "--input", tmp_path / name)
        assert done.returncode == 1 and why in done.stderr.decode(), name
    several = run(colours, "--input", tmp_path / "no.png", "--input", photos / "a.png", "--json")
    bad, good = json.loads(several.stdout)["results"]
    assert "not an image" in bad["error"] and "classes" in good
    none = run(colours, "--input", tmp_path / "no.png", "--input", tmp_path / "cut.png")
    assert none.returncode == 1 and b"none of 2 inputs can be read" in none.stderr
    assert run(colours, "--input", photos / "a.png", "--top", 0).returncode == 2
    done = run(colours, "--prompt", "Hello")
    assert done.returncode == 1 and b"is not a language model" in done.stderr


class Class(ctypes.Structure):
    _fields_ = [
        ("label", ctypes.c_char_p),
        ("index", ctypes.c_uint32),
        ("probability", ctypes.c_double),
    ]


def test_pictures_are_the_cpus(colours: Path, photos: Path) -> None:
    on_cpu = run(colours, "--input", photos / "a.png", "--target", "cpu")
    assert on_cpu.returncode == 0, on_cpu.stderr
    elsewhere = run(colours, "--input", photos / "a.png", "--target", "qnn:SM8750")
    assert elsewhere.returncode == 1 and b"computed on the CPU here" in elsewhere.stderr


def test_the_c_api_classifies(colours: Path, photos: Path) -> None:
    library = ctypes.CDLL(str(next((DEVICE / "lib").glob("libsatchel.*"))))
    library.satchel_error_message.restype = ctypes.c_char_p
    handle, count = ctypes.c_void_p(), ctypes.c_size_t()
    opened = library.satchel_classifier_open(os.fsencode(colours), None, ctypes.byref(handle))
    assert opened == 0, library.satchel_error_message()
    place, room = (Class * 3)(), ctypes.c_size_t(3)

    def classes() -> list[tuple[str, int, float]]:
        found = [(c.label.decode(), c.index, c.probability) for c in place[: count.value]]
        assert len(found) == 3
        return found

    classifier = Classifier(colours)
    for path in (photos / "a.png", photos / "turned.jpg"):
        data = path.read_bytes()
        size = ctypes.c_size_t(len(data))
        rest = (place, room, ctypes.byref(count))
        assert library.satchel_classify(handle, data, size, *rest) == 0
        with Image.open(io.BytesIO(data)) as image:
            upright = ImageOps.exif_transpose(image)
            wanted = [
                (p.label, p.index, p.probability) for p in classifier.classify(upright, top=3)
            ]
            assert classes() == wanted
            rgb = np.asarray(upright)
        pixels = (rgb.tobytes(), rgb.shape[1], rgb.shape[0])
        assert library.satchel_classify_pixels(handle, *pixels, *rest) == 0
        assert classes() == wanted
    assert library.satchel_classify(handle, b"no", ctypes.c_size_t(2), *rest) == INVALID_IMAGE
    assert b"not an image" in library.satchel_error_message()
    assert library.satchel_classify_pixels(handle, pixels[0], 0, 3, *rest) == INVALID_IMAGE
    assert library.satchel_classify_pixels(handle, None, 1, 1, *rest) == MISUSE
    assert library.satchel_classify(handle, data, size, None, room, ctypes.byref(count)) == MISUSE
    model = ctypes.c_void_p()
    opened = library.satchel_model_open(os.fsencode(colours), None, ctypes.byref(model))
    assert opened == IMPOSSIBLE and b"not a language model" in library.satchel_error_message()
    library.satchel_classifier_close(handle)
    assert library.satchel_classify(handle, data, size, *rest) == MISUSE
