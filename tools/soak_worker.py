"""Ordinary use over and over in one process; prints how much memory it took at the end."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import time
from pathlib import Path

import satchel
from satchel.errors import SatchelError
from satchel.machine import current_rss
from satchel.runtime.program import Program


def once(program: Path, checkpoint: Path, number: int) -> None:
    """Answers, a conversation, an export, a file that is refused, a program that is opened."""
    llm = satchel.LLM(program)
    for piece in llm.generate(f"{number % 1000} " * 5, max_new_tokens=8):
        assert isinstance(piece, str)
    chat = llm.chat(system="Be brief.")
    chat.send("Hello").finish()
    satchel.export(checkpoint, program.parent / "again.satchel", overwrite=True)
    Program(program).verify()
    damaged = program.parent / "damaged.satchel"
    data = bytearray(program.read_bytes())
    data[number * 997 % 4096] ^= 0xFF
    damaged.write_bytes(data)
    with contextlib.suppress(SatchelError):
        Program(damaged).method("kv_forward")(tokens=[1], position=[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    program, checkpoint = options.folder / "8da4w.satchel", options.folder / "tiny"
    begin = time.monotonic()
    rounds, warm = 0, 0
    while time.monotonic() - begin < options.seconds or rounds < 20:
        once(program, checkpoint, rounds)
        rounds += 1
        if rounds == 10:
            gc.collect()
            warm = current_rss()
    gc.collect()
    grown = current_rss() - warm
    print(json.dumps({"rounds": rounds, "warm_bytes": warm, "grown_bytes": grown}))


if __name__ == "__main__":
    main()
