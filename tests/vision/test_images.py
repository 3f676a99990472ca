"""Pictures as people have them: turned, with 16 bits, too large, damaged, or not pictures."""

from __future__ import annotations

import io
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from satchel.errors import InputError  # noqa: E402
from satchel.vision.images import MOST_PIXELS, open_image  # noqa: E402


def _photo(width: int = 12, height: int = 8) -> np.ndarray:
    random = np.random.default_rng(3)
    return random.integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_seen_as_it_was_taken(orientation: int, tmp_path: Path) -> None:
    upright = _photo()
    turned = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "x.png"
    Image.fromarray(np.ascontiguousarray(turned)).save(path, exif=exif)
    np.testing.assert_array_equal(np.asarray(open_image(path, "x")), upright)


@pytest.mark.parametrize(
    ("name", "dtype", "white"),
    [
        ("x.png", np.uint16, 65535),
        ("x.tif", np.uint16, 65535),
        ("x.tif", np.int32, 2**31 - 1),
        ("x.tif", np.int32, 65535),
        ("x.tif", np.int32, 255),
        ("x.tif", np.float32, 1),
        ("x.tif", np.float32, 255),
        ("x.tif", np.float32, 65535),
    ],
)
def test_grey_of_many_bits_does_not_saturate(
    name: str, dtype: type, white: float, tmp_path: Path
) -> None:
    shades = np.linspace(0, 1, 60).reshape(6, 10)
    path = tmp_path / name
    Image.fromarray((shades * white).astype(dtype)).save(path)
    got = np.asarray(open_image(path, name).convert("RGB"), np.float64)
    scale = 2 if white == 2**31 - 1 else 1  # half of what 32 bits without a sign hold
    np.testing.assert_allclose(got[..., 0] * scale, shades * 255, atol=1.01 * scale)


def test_only_named_formats_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(InputError, match="not an image that can be read.*JPEG, PNG"):
        open_image(path, "x.png")


def _png(width: int, height: int) -> bytes:
    """An empty picture of any size in few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    packer = zlib.compressobj()
    rows = b"".join(packer.compress(bytes(3 * width + 1)) for _ in range(height)) + packer.flush()
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_picture_that_is_too_large_is_refused_before_it_is_decoded() -> None:
    side = int(MOST_PIXELS**0.5) + 1
    with pytest.raises(InputError, match=f"{side} by {side} pixels"):
        open_image(_png(side, side)[:500], "bomb")  # not even its pixels are there


def test_damage_is_one_error() -> None:
    whole = io.BytesIO()
    Image.fromarray(_photo(64, 64)).save(whole, "PNG")
    with pytest.raises(InputError, match="not an image that can be read"):
        open_image(whole.getvalue()[:4000], "half")


SCRIPT = """
import re, sys
from satchel.vision.images import open_image
from satchel.vision.preprocess import Preprocessing
image = open_image(sys.stdin.buffer.read(), "long")
print(Preprocessing(256, (224, 224)).prepare(image).shape)
# Its own peak; what getrusage says begins with the process that started it.
status = open("/proc/self/status").read()
print(int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) // 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
@pytest.mark.parametrize("size", [(20000, 1), (1, 20000)])
def test_a_very_long_picture_takes_little_memory(size: tuple[int, int]) -> None:
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=_png(*size), capture_output=True, check=True
    )
    shape, megabytes = made.stdout.decode().split("\n")[:2]
    assert shape == "(1, 3, 224, 224)"
    assert int(megabytes) < 300
