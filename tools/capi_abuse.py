"""The C API called in any order by several threads, with sanitizers watching.

    python tools/capi_abuse.py --preset fuzz --seconds 30           # addresses, undefined behaviour
    python tools/capi_abuse.py --preset tsan --seconds 30           # races
    python tools/capi_abuse.py --preset fuzz hostile/*.satchel      # other files besides our own

Handles are closed while others use them, of the wrong kind or made up; files are whole, cut off,
damaged in one byte, and those that are given; recordings too. See native/tests/capi_abuse.cpp.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import torch  # noqa: E402

import satchel  # noqa: E402
from satchel.vision.classifier import class_metadata  # noqa: E402
from support.tiny_llm import write_tiny_llm  # noqa: E402
from support.tiny_whisper import export_tiny  # noqa: E402
from vision.conftest import CLASSES, PREPROCESSING, Colours  # noqa: E402


def build(preset: str, target: str = "capi_abuse") -> Path:
    """A program of native/tests, built with the preset's sanitizers."""
    if shutil.which("make") is None or shutil.which("ninja"):
        os.environ.setdefault("CMAKE_GENERATOR", "Ninja")
    subprocess.run(["cmake", "--preset", preset], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", "--preset", preset, "--target", target]
    subprocess.run([*command, "--parallel", str(os.cpu_count())], cwd=ROOT, check=True)
    return ROOT / "build" / preset / target


def write_files(folder: Path, seed: int) -> list[Path]:
    """Tiny models that are whole (two that talk, one that sees, one that hears), cut off, and with
    a wrong byte; recordings likewise."""
    whole = satchel.export(
        write_tiny_llm(folder / "tiny"), folder / "a.satchel", context=96, prefill_ar_len=32
    )
    small = satchel.export(folder / "tiny", folder / "b.satchel", context=32, kv_bits=8, mode="kv")
    classifier = satchel.export(
        Colours().eval(),
        (torch.zeros(1, 3, *PREPROCESSING.crop),),
        folder / "c.satchel",
        metadata=class_metadata(PREPROCESSING, CLASSES[:2]),
    )
    data = whole.read_bytes()
    (folder / "cut.satchel").write_bytes(data[: len(data) // 2])
    chance = random.Random(seed)
    _, hears = export_tiny(folder / "hears")
    files = [whole, small, classifier, hears, folder / "cut.satchel", folder / "missing.satchel"]
    for number in range(8):
        damaged = bytearray(hears.read_bytes() if number > 5 else data)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        files.append(folder / f"damaged{number}.satchel")
        files[-1].write_bytes(damaged)
    return [*files, *write_sounds(folder, chance)]


def write_sounds(folder: Path, chance: random.Random) -> list[Path]:
    """Two seconds of noise: whole, cut off, and with wrong bytes in the header."""
    sound = folder / "noise.wav"
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(chance.randbytes(64000))
    data = sound.read_bytes()
    (folder / "cut.wav").write_bytes(data[:1001])
    sounds = [sound, folder / "cut.wav"]
    for number in range(6):
        damaged = bytearray(data)
        damaged[chance.randrange(44)] = chance.randrange(256)
        sounds.append(folder / f"damaged{number}.wav")
        sounds[-1].write_bytes(damaged)
    return sounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--preset", choices=("fuzz", "asan", "tsan", "races"), default="fuzz")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = build(arguments.preset)
    # The thread sanitizer's memory can collide with addresses that the system chooses at random.
    fixed = ["setarch", platform.machine(), "-R"] if arguments.preset in ("tsan", "races") else []
    with tempfile.TemporaryDirectory() as folder:
        files = [*write_files(Path(folder), arguments.seed), *arguments.files]
        words = [*fixed, program, arguments.seconds, arguments.seed, *files]
        environment = {"UBSAN_OPTIONS": "print_stacktrace=1", **os.environ}
        done = subprocess.run([*map(str, words)], check=False, env=environment)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
