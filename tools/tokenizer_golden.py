"""The native tokenizer beside Hugging Face's `tokenizers`, line by line.

    python tools/tokenizer_golden.py FOLDER/tokenizer.json model.gguf tokenizer.model … \\
        --text wiki.test.raw --lines 10000

For each: the ids of every line, the text of these ids, and how fast both were. Any difference is
shown, and ends with status 1. With ``--llama COMMAND``, tools/llama_tokenize.c as it was compiled,
the speed of llama.cpp on GGUF files is told, too.
"""

from __future__ import annotations

import argparse
import shlex
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from satchel import _native
from satchel.checkpoints.base import TokenizerSource
from satchel.llm.compiled import NotCompiled, compile_tokenizer
from satchel.llm.tokenizer import read_tokenizer
from satchel.llm.tokenizer_sources.backend import load_backend
from satchel.llm.tokenizer_sources.spec import TokenizerSpec
from support.mixed_lines import mixed_lines


def llama_speed(command: str, path: Path, lines: list[str], megabytes: float) -> str:
    """llama.cpp's, as tools/llama_tokenize.c measures it: without Python around each line."""
    encoded = [line.encode() for line in lines]
    done = subprocess.run(
        [*shlex.split(command), str(path)],
        input=b"".join(struct.pack("=I", len(line)) + line for line in encoded),
        capture_output=True,
        check=True,
    )
    seconds, tokens = done.stdout.split()
    return f", llama.cpp {megabytes / float(seconds):.1f} MB/s ({int(tokens)} tokens)"


def spec_of(path: Path) -> TokenizerSpec:
    if path.suffix == ".gguf":
        from satchel.checkpoints.gguf_header import read_gguf_header
        from satchel.checkpoints.weightfile import open_files

        with open_files(path) as files:
            return read_tokenizer(
                TokenizerSource("gguf", path, read_gguf_header(files[0]).metadata)
            )
    if path.suffix == ".model":
        return read_tokenizer(TokenizerSource("sentencepiece", path))
    if path.suffix == ".bin":
        return read_tokenizer(TokenizerSource("llama2c", path))
    return read_tokenizer(TokenizerSource("huggingface", path.parent))


def compare(path: Path, texts: list[str], count: int, llama: str | None = None) -> bool:
    spec = spec_of(path)
    oracle = load_backend(spec.json, str(path))
    try:
        native = _native.Tokenizer.from_bytes(compile_tokenizer(spec))
    except NotCompiled as reason:
        print(f"{path}: not compiled: {reason}")
        return False
    names = [str(token.content) for token in oracle.get_added_tokens_decoder().values()][:40]
    real = texts[: count // 2]
    lines = [*mixed_lines(count - len(real), names=names), *real]
    size = sum(len(line.encode()) for line in lines) / 1e6
    started = time.perf_counter()
    wanted = [oracle.encode(line, add_special_tokens=False).ids for line in lines]
    theirs = time.perf_counter() - started
    started = time.perf_counter()
    found = [native.encode(line) for line in lines]
    ours = time.perf_counter() - started
    wrong = [i for i, line in enumerate(lines) if wanted[i] != found[i]]
    for special in (True, False):
        decoded = [native.decode(ids, special) == oracle.decode(ids, special) for ids in wanted]
        wrong += [i for i, same in enumerate(decoded) if not same]
    theirs_too = llama_speed(llama, path, lines, size) if llama and path.suffix == ".gguf" else ""
    print(
        f"{path}: {len(lines)} lines, {sum(map(len, wanted))} tokens, {len(wrong)} differ; "
        f"tokenizers {size / theirs:.1f} MB/s, native {size / ours:.1f} MB/s{theirs_too}"
    )
    for i in wrong[:3]:
        print(f"  {lines[i]!r}\n   want {wanted[i]}\n   got  {found[i]}")
        print(f"   text {native.decode(wanted[i])!r}")
    return not wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizers", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--text", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--lines", type=int, default=10000, metavar="N")
    parser.add_argument("--llama", metavar="COMMAND", help="tools/llama_tokenize.c compiled")
    given = parser.parse_args()
    texts = [line for file in given.text for line in file.read_text("utf-8").splitlines() if line]
    results = [compare(path, texts, given.lines, given.llama) for path in given.tokenizers]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
