"""The table of docs/quality.md: perplexity, and HellaSwag, of one model in several recipes.

    python benchmarks/quality.py smollm2-135m wiki.test.raw --limit 32768 \
        --hellaswag hellaswag_val_full.txt.bz2 --items 200 --peer llamacpp/bin/python

With --peer, the interpreter of an environment with llama-cpp-python, and a source in GGUF,
llama.cpp scores the same windows with the same weights, in float and as Q4_0. --row adds a recipe:
--row '8da4w, g128=--group-size 128'. What has been measured before is taken from the cache.

Rows with CALIBRATE in their flags are calibrated on --calibrate, by default on the second half of
the text; --limit must leave that half out.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROWS = {
    "fp16": "--recipe fp16",
    "8da4w": "--recipe 8da4w",
    "8da4w, group size 64": "--recipe 8da4w --group-size 64",
    "8da4w, embedding and head 8 bits": "--recipe 8da4w --embedding 8,32 --head-bits 8",
    "8da4w, KV cache 8 bits": "--recipe 8da4w --kv-bits 8",
    "16a4w": "--recipe 16a4w",
    "8a8w": "--recipe 8a8w",
    "16a8w": "--recipe 16a8w",
}
CALIBRATED_ROWS = {
    "8da4w, scales searched": "--recipe 8da4w CALIBRATE --rounding search",
    "8da4w, calibrated": "--recipe 8da4w CALIBRATE",
    "8da4w, calibrated, embedding and head 8 bits": "--recipe 8da4w CALIBRATE --embedding 8,32 "
    "--head-bits 8",
    "8da4w, calibrated, KV cache 8 bits": "--recipe 8da4w CALIBRATE --kv-bits 8",
    "8da4w, rotated": "--recipe 8da4w --rotate",
    "8da4w, calibrated and rotated": "--recipe 8da4w CALIBRATE --rotate",
    "8da4w, calibrated and rotated online": "--recipe 8da4w CALIBRATE --rotate --rotate-online",
    "16a4w, calibrated": "--recipe 16a4w CALIBRATE",
}
# Only for a source that comes quantised.
KEPT_ROWS = {
    "keep": "--recipe keep",
    "keep, activations 8 bits": "--recipe keep --activation-bits 8",
}
HEADER = (
    "| | perplexity | over float | file | HellaSwag acc | acc_norm |\n|---|---|---|---|---|---|"
)
# What the matrices and the embedding, which is the head too, become for llama.cpp.
PEER_ROWS: dict[str, tuple[str, str] | None] = {
    "llama.cpp, the file as it is": None,
    "llama.cpp, F32": ("F32", "F32"),
    "llama.cpp, Q4_0": ("Q4_0", "Q4_0"),
    "llama.cpp, Q4_0, embedding Q8_0": ("Q4_0", "Q8_0"),
}


def satchel(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "satchel", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def print_row(name: str, ppl: float, plain: float, size: int, task: dict[str, Any]) -> None:
    scores = [f"{task[m]:.1%}" if m in task else "" for m in ("acc", "acc_norm")]
    over = "" if ppl == plain else f"{ppl - plain:+.3f}"
    print(
        f"| {name} | {ppl:.3f} | {over} | {size / 1e6:.0f} MB | {' | '.join(scores)} |", flush=True
    )


def evaluate(program: Path, arguments: argparse.Namespace) -> tuple[float, dict[str, Any]]:
    cut = ["--window", arguments.window]
    cut += ["--limit", arguments.limit] if arguments.limit else []
    found = satchel("eval", program, "--text", arguments.text, *cut)
    task: dict[str, Any] = {}
    if arguments.hellaswag:
        items = ["--hellaswag", arguments.hellaswag, "--limit", arguments.items]
        task = satchel("eval", program, *items)["tasks"]["hellaswag"]["device"]
    return found["phases"]["device"]["ppl"], task


def calibration_text(arguments: argparse.Namespace, folder: Path) -> Path:
    """What to calibrate on: never what is evaluated."""
    if arguments.calibrate:
        return Path(arguments.calibrate)
    text = arguments.text.read_text(encoding="utf-8")
    # A token has some four characters; with eight the limit still lies in the first half.
    if arguments.limit is None or arguments.limit > len(text) // 16:
        sys.exit("give --calibrate, or a --limit that leaves the second half of the text out")
    half = folder / "second-half.txt"
    half.write_text(text[len(text) // 2 :], encoding="utf-8")
    return half


def write_windows(program: Path, arguments: argparse.Namespace, output: Path) -> None:
    from satchel import LLM
    from satchel.eval.texts import leading_tokens, read_text, text_tokens
    from satchel.eval.windows import split_windows

    llm = LLM(program)
    text = read_text(arguments.text)
    tokens = text_tokens(llm.tokenizer, text, arguments.limit, str(arguments.text))
    window = min(arguments.window, llm.session.context)
    windows = split_windows(tokens, leading_tokens(llm.tokenizer), window)
    output.write_text(json.dumps([[list(w.tokens), w.first] for w in windows]))


def write_gguf(source: Path, output: Path, matrices: str, embedding: str) -> None:
    """The same weights in other types; all else as it is."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(output, architecture)
    for name, field in reader.fields.items():
        if name == "general.architecture" or name.startswith("GGUF."):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        wanted = embedding if tensor.name == "token_embd.weight" else matrices
        kind = gguf.GGMLQuantizationType[wanted if values.ndim == 2 else "F32"]
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("text", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--hellaswag", type=Path)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--peer", help="a Python with llama-cpp-python")
    parser.add_argument("--calibrate", help="the text, or what else satchel export takes")
    parser.add_argument("--row", action="append", default=[], metavar="NAME=FLAGS")
    arguments = parser.parse_args()
    added = dict(r.split("=", 1) for r in arguments.row)
    rows = {"fp32": "--recipe fp32", **ROWS, **CALIBRATED_ROWS, **added}
    source = Path(satchel("pull", arguments.source)["path"])
    if source.suffix == ".gguf":
        rows |= KEPT_ROWS
    print(HEADER, flush=True)
    plain = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calibrate = f"--calibrate {shlex.quote(str(calibration_text(arguments, folder)))}"
        for label, flags in rows.items():
            program = folder / f"{label}.satchel"
            chosen = shlex.split(flags.replace("CALIBRATE", calibrate))
            made = satchel("export", arguments.source, "-o", program, *chosen)
            ppl, task = evaluate(program, arguments)
            plain = plain or ppl
            print_row(label, ppl, plain, made["file_size_bytes"], task)
            if label != "fp32":
                program.unlink()
        if not arguments.peer:
            return
        write_windows(folder / "fp32.satchel", arguments, folder / "windows.json")
        script = Path(__file__).with_name("quality_llamacpp.py")
        for label, kinds in PEER_ROWS.items():
            model = folder / "peer.gguf" if kinds else source
            if kinds:
                write_gguf(source, model, *kinds)
            command = [arguments.peer, script, model, folder / "windows.json"]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            print_row(label, json.loads(done.stdout)["ppl"], plain, model.stat().st_size, {})


if __name__ == "__main__":
    main()
