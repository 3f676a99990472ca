"""Pictures in native code: Pillow's pixels and Pillow's resizing, bit for bit."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from transformers.image_transforms import convert_to_rgb

from satchel import _native
from satchel.errors import InputError
from satchel.vision.images import open_image
from satchel.vision.preprocess import Preprocessing

SIZES = [(1, 1), (2, 3), (3, 2), (8, 8), (17, 9), (16, 33), (61, 40)]  # width, height
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
PASSES.append((0, 1, 1, 2))  # left, top, across, down of an interlaced PNG


def check(data: bytes) -> NDArray[np.uint8]:
    wanted = np.asarray(open_image(data, "it").convert("RGB"))
    found = _native.read_image(data, "it")
    np.testing.assert_array_equal(found, wanted)
    on_white = convert_to_rgb(open_image(data, "it"), return_numpy=True)
    np.testing.assert_array_equal(_native.read_image(data, "it", on_white=True), on_white)
    return found


def pixels(width: int, height: int, channels: int = 3) -> NDArray[np.uint8]:
    """Slopes, edges and noise."""
    rng = np.random.default_rng(width * 100 + height)
    y, x = np.mgrid[:height, :width]
    planes = [x * 7 + y * 3, 255 * ((x // 5 + y // 3) % 2), rng.integers(0, 256, x.shape), y * 11]
    return np.stack(planes[:channels], 2).astype(np.uint8)


def saved(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


def png(rows: list[bytes], width: int, height: int, depth: int, colour: int, **more: Any) -> bytes:
    """A PNG of rows as they are written, each with the number of its filter."""

    def chunk(name: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", sum_)

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, more.get("interlaced", 0))
    parts = [chunk(b"IHDR", header)]
    if colour == 3:
        parts.append(chunk(b"PLTE", more["palette"]))
    parts += [chunk(name, data) for name, data in more.get("chunks", [])]
    data = zlib.compress(b"".join(rows), more.get("level", 6))
    parts += [chunk(b"IDAT", data[i : i + 100]) for i in range(0, len(data), 100)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "LA", "RGBA", "I;16"])
def test_pngs_as_pillow_writes_them(mode: str) -> None:
    for size in SIZES:
        image = Image.fromarray(pixels(*size, 4), "RGBA")
        if mode == "I;16":
            image = Image.fromarray(pixels(*size)[:, :, 0].astype(np.uint16) * 257 + 3)
        else:
            image = image.convert("RGB").convert(mode) if mode != "RGBA" else image
        for options in ({}, {"compress_level": 0}, {"optimize": True}):
            check(saved(image, format="PNG", **options))
    for bits in (1, 2, 4):
        few = Image.fromarray(pixels(31, 7)).quantize(2**bits)
        check(saved(few, format="PNG", bits=bits))


@pytest.mark.parametrize("interlaced", [0, 1])
@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize(
    ("depth", "colour"),
    [(d, c) for c in (0, 2, 3, 4, 6) for d in (1, 2, 4, 8, 16) if d >= 8 or c in (0, 3)][:-1],
)
def test_pngs_of_every_kind(depth: int, colour: int, level: int, interlaced: int) -> None:
    if (depth, colour) == (16, 3):
        pytest.skip("there is none")
    rng = np.random.default_rng(depth * 10 + colour)
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    for width, height in ((1, 1), (5, 3), (19, 23)):
        rows = []
        for left, top, across, down in PASSES if interlaced else [(0, 0, 1, 1)]:
            columns = -(-(width - left) // across)
            for _ in range(top, height, down):
                if columns <= 0:
                    continue
                data = rng.integers(0, 256, -(-columns * channels * depth // 8), np.uint8)
                data[rng.random(len(data)) < 0.5] = 7  # so that there is something to find again
                rows.append(bytes([int(rng.integers(0, 5))]) + data.tobytes())
        palette = rng.integers(0, 256, 3 * (200 if depth == 8 else 2**depth), np.uint8).tobytes()
        more = {"palette": palette, "level": level, "interlaced": interlaced}
        check(png(rows, width, height, depth, colour, **more))
        if colour in (0, 2, 3):  # what is transparent: a colour, or each of the palette's
            size = {0: 2, 2: 6, 3: int(rng.integers(1, len(palette) // 3 + 1))}[colour]
            for clear in (
                bytes([0, 7] * (size // 2)),
                rng.integers(0, 256, size, np.uint8).tobytes(),
            ):
                if len(clear) == size:
                    more["chunks"] = [(b"tRNS", clear)]
                    check(png(rows, width, height, depth, colour, **more))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpegs(subsampling: int, progressive: bool) -> None:
    for size in SIZES:
        image = Image.fromarray(pixels(*size))
        for quality, optimize in ((5, True), (75, False), (100, True)):
            options = {"quality": quality, "optimize": optimize, "progressive": progressive}
            check(saved(image, format="JPEG", subsampling=subsampling, **options))
        options = {"restart_marker_blocks": 2, "progressive": progressive}
        check(saved(image, format="JPEG", subsampling=subsampling, **options))


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_jpegs_of_other_colours(mode: str) -> None:
    for size in SIZES:
        for progressive in (False, True):
            image = Image.fromarray(pixels(*size)).convert(mode)
            check(saved(image, format="JPEG", keep_rgb=True, progressive=progressive))


# 19 by 13 pixels by libjpeg-turbo's cjpeg with -sample 1x2, 4x1 and 1x4.
OTHER_SAMPLES = {
    "1x2": """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdB
RkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P
T09PT09PT09PT09PT0//wAARCAANABMDARIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAABgX/xAAdEAABAwUBAAAAAAAA
AAAAAAAEAAMiAQIFITES/8QAFQEBAQAAAAAAAAAAAAAAAAAABQP/xAAbEQACAwADAAAAAAAAAAAAAAAAAgEEBRESE//aAAwD
AQACEQMRAD8AIjYrkU0FCa0iFtywVX02II2I5FNxQWtK6z2HK+qwYtw8aRTq0FrzRU8RRdZuD//Z
""",
    "4x1": """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdB
RkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P
T09PT09PT09PT09PT0//wAARCAANABMDAUEAAhEBAxEB/8QAFwABAQEBAAAAAAAAAAAAAAAABQAEBv/EAB0QAAEDBQEAAAAA
AAAAAAAAAAADBCIBAgUhMRL/xAAWAQEBAQAAAAAAAAAAAAAAAAAFAAb/xAAeEQABBAEFAAAAAAAAAAAAAAAAAQIEBSIDERMh
I//aAAwDAQACEQMRAD8A5FtiuRFm2I5EQtw8aRIPXPsdq5nibmrJLQy1YpaE7WKXmhFFyZupmq3XdxH/2Q==
""",
    "1x4": """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdB
RkxOUlNSMj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P
T09PT09PT09PT09PT0//wAARCAANABMDARQAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAAYF/8QAHRAAAQMFAQAAAAAA
AAAAAAAAAAMEIgECBSExEv/EABYBAQEBAAAAAAAAAAAAAAAAAAUEBv/EAB4RAAEEAgMBAAAAAAAAAAAAAAABAgMEMVIFERIy
/9oADAMBAAIRAxEAPwCRbYrkS0asktAATLEjsqZ+C9PsYLbEciW7ViloAsYvrI1Bfn2Ji3DxpEurWKXmgBSkbRRvIWOvo//Z
""",
}


@pytest.mark.parametrize("name", OTHER_SAMPLES)
def test_jpegs_whose_colours_have_other_sizes(name: str) -> None:
    assert check(base64.b64decode(OTHER_SAMPLES[name])).shape == (13, 19, 3)


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_pictures_are_turned(format: str) -> None:
    image = Image.fromarray(pixels(19, 8))
    seen = set()
    for orientation in range(10):
        exif = Image.Exif()
        exif[0x0112] = orientation
        options = {"exif": exif} if format == "PNG" else {"exif": exif, "quality": 90}
        seen.add(check(saved(image, format=format, **options)).tobytes())
        packet = f'<x tiff:Orientation="{orientation}"/>'.encode()
        data = saved(image, format="JPEG", xmp=packet)
        if format == "PNG":
            text = b"XML:com.adobe.xmp\0\0\0\0\0" + packet
            rows = [b"\0" + row.tobytes() for row in pixels(19, 8)]
            data = png(rows, 19, 8, 8, 2, chunks=[(b"iTXt", text)])
        check(data)
    assert len(seen) == 8


def test_damaged_pictures_are_refused() -> None:
    image = Image.fromarray(pixels(40, 30))
    whole = [saved(image, format=f, **o) for f, o in (("PNG", {}), ("JPEG", {"progressive": True}))]
    rng = np.random.default_rng(0)
    for data in whole:
        for size in range(0, len(data) - 12, 7):
            with pytest.raises(InputError, match="not an image that can be read"):
                _native.read_image(data[:size], "it")
        for _ in range(300):
            damaged = bytearray(data)
            damaged[rng.integers(0, len(data))] = rng.integers(0, 256)
            try:
                _native.read_image(bytes(damaged), "it")
            except InputError as error:
                assert "it is not an image that can be read" in error.message
    huge = png([], 100_000, 1_000, 8, 2)
    with pytest.raises(InputError, match="100000 by 1000 pixels, which is too large"):
        _native.read_image(huge, "it")
    gif = saved(image, format="GIF")
    with pytest.raises(InputError) as caught:
        _native.read_image(gif, "a.gif")
    assert caught.value.advice == "Give a PNG or a JPEG."


def by_pillow(one: Preprocessing, image: Image.Image, most_resized: int) -> NDArray[np.float32]:
    """What Pillow makes of a picture, and numpy of its pixels."""
    resampling = getattr(Image.Resampling, one.interpolation.upper())
    size = one.scaled_size(*image.size)
    height, width = one.crop
    start = [round((size[0] - width) / 2), round((size[1] - height) / 2)]
    long = 0 if size[0] >= size[1] else 1
    if size[0] * size[1] > most_resized and start[long] > 0:
        ratio = image.size[long] / size[long]
        box, wanted = [0.0, 0.0, *map(float, image.size)], list(size)
        wanted[long] = (width, height)[long]
        box[long], box[long + 2] = start[long] * ratio, (start[long] + wanted[long]) * ratio
        image = image.resize((wanted[0], wanted[1]), resampling, box=tuple(box))
        start[long] = 0
    else:
        image = image.resize(size, resampling)
    image = image.crop((*start, start[0] + width, start[1] + height))
    colours = np.asarray(image, np.float32) / np.float32(255)
    normal = (colours - np.array(one.mean, np.float32)) / np.array(one.std, np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float32)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
def test_what_a_model_sees_is_pillows(interpolation: str) -> None:
    rng = np.random.default_rng(1)
    for size in [*SIZES, (200, 131), (131, 200), (5, 300), (2, 4000), (4000, 2)]:
        image = Image.fromarray(pixels(*size))
        for _ in range(3):
            resize, height, width = map(int, rng.integers(1, 90, 3))
            one = Preprocessing(resize, (height, width), interpolation=interpolation)
            np.testing.assert_array_equal(one.prepare(image), by_pillow(one, image, 1 << 24))
    # So long that only a part of it is resized.
    for size in ((30_000, 3), (3, 30_000)):
        image = Image.fromarray(pixels(*size))
        one = Preprocessing(64, (56, 48), interpolation=interpolation)
        assert np.prod(one.scaled_size(*size)) > 1 << 24
        np.testing.assert_array_equal(one.prepare(image), by_pillow(one, image, 1 << 24))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_sides_are_made_in_pillows_order(interpolation: str) -> None:
    """A picture that becomes much lower is made lower first, and that rounds apart."""
    resampling = getattr(Image.Resampling, interpolation.upper())
    for size in ((47, 64), (64, 47), (50, 50), (40, 90), (9, 40)):
        image = Image.fromarray(pixels(*size))
        for wanted in ((36, 40), (28, 38), (36, 20), (20, 45), (60, 80), (20, 80), (80, 20), size):
            whole = np.asarray(image.resize(wanted, resampling))
            found = _native.resize_part(np.asarray(image), wanted, (0, 0, *wanted), interpolation)
            np.testing.assert_array_equal(found, whole)
            area = (wanted[0] // 4, wanted[1] // 3, wanted[0] // 2, wanted[1] // 4)
            found = _native.resize_part(np.asarray(image), wanted, area, interpolation)
            left, top, width, height = area
            np.testing.assert_array_equal(found, whole[top : top + height, left : left + width])
    for area in ((0, 0, 37, 1), (-1, 0, 2, 2), (0, 0, 0, 1)):
        with pytest.raises(ValueError, match="must lie inside"):
            _native.resize_part(pixels(4, 4), (36, 36), area, interpolation)
