"""What a vision-language model sees of images: its tower, and the layers that read of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from satchel.calibration.layers import ReadRows, Told, layer_inputs
from satchel.calibration.texts import CalibrationText
from satchel.calibration.watch import InputWatch, SeenInput
from satchel.errors import InputError
from satchel.graph.reference import ReferenceInterpreter
from satchel.models.base import Decoder
from satchel.vision.images import image_paths
from satchel.vision_language.pictures import read_picture
from satchel.vision_language.towers import Tower

Array = NDArray[Any]
DEFAULT_SAMPLES = 32  # pictures: more change little


@dataclass(frozen=True)
class CalibrationPictures:
    """The frames that a tower is run on, and a text that the model reads beside them."""

    source: str
    frames: tuple[Array, ...]  # the whole of each picture, and its tiles
    pictures: int
    text: CalibrationText
    digest: str

    @property
    def tokens(self) -> int:
        return self.text.tokens


def read_pictures(
    source: str, tower: Tower, text: CalibrationText, samples: int | None = None
) -> CalibrationPictures:
    """The first pictures of a folder."""
    folder = Path(source).expanduser()
    paths = list(image_paths(folder))[: samples or DEFAULT_SAMPLES]
    if not paths:
        raise InputError(f"{folder} has no images to calibrate on", "Put some JPEG or PNG there.")
    frames: list[Array] = []
    for path in paths:
        frames += tower.preprocessing.frames(read_picture(path)).pixels
    digest = hashlib.sha256(text.digest.encode())
    for frame in frames:
        digest.update(frame.tobytes())
    return CalibrationPictures(source, tuple(frames), len(paths), text, digest.hexdigest())


def shown_inputs(
    tower: Tower,
    model: Decoder,
    read: ReadRows,
    used: CalibrationPictures,
    told: Told = lambda _done, _total: None,
) -> Iterator[SeenInput]:
    """What every linear layer sees: the tower's of frames, the others' of a text and of these."""
    see = tower.see()
    watch = InputWatch([see])
    rows: list[Array] = []
    for part in watch.passes():
        watch.wanted = part
        interpreter = ReferenceInterpreter(
            lambda weight: read(weight, 0, weight.shape[0]), keeps_weights=False
        )
        rows.clear()
        for frame in used.frames:
            watch.begin()
            rows.append(interpreter.run(see, {"pixels": frame}, watch)["rows"][: tower.rows])
        yield from watch.finish()
    yield from layer_inputs(model, read, used.text.windows, told, rows)
