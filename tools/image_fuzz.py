"""Damaged PNGs and JPEGs, decoded with sanitizers watching.

    python tools/image_fuzz.py --seconds 60                  # addresses and undefined behaviour
    python tools/image_fuzz.py --seconds 60 photos/*.jpg     # other pictures besides our own

See native/tests/image_fuzzer.cpp.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from capi_abuse import build
from PIL import Image


def write_pictures(folder: Path) -> list[Path]:
    """A small one of every kind that Pillow writes."""
    noise = np.random.default_rng(0).integers(0, 256, (24, 37, 4), np.uint8)
    noise[8:] = noise[8]
    image = Image.fromarray(noise, "RGBA")
    made = []
    for number, mode in enumerate(("1", "L", "P", "LA", "RGB", "RGBA", "I;16", "CMYK")):
        grey = Image.fromarray(noise[:, :, 0].astype(np.uint16) * 257)
        picture = grey if mode == "I;16" else image.convert("RGB").convert(mode)
        if mode != "CMYK":
            made.append(folder / f"{number}.png")
            picture.save(made[-1])
        if mode in ("L", "RGB", "CMYK"):
            for progressive in (False, True):
                made.append(folder / f"{number}{progressive}.jpg")
                picture.save(made[-1], progressive=progressive, restart_marker_blocks=3)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--preset", choices=("fuzz", "asan"), default="fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = build(arguments.preset, "image_fuzzer")
    with tempfile.TemporaryDirectory() as folder:
        files = [*write_pictures(Path(folder)), *arguments.files]
        words = [program, arguments.seconds, arguments.seed, *files]
        return subprocess.run([*map(str, words)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
