"""Damaged files of all that is read besides programs; prints counts as JSON.

    python tools/input_worker.py FOLDER --seconds 60 --seed 1 [--only gguf]

Checkpoints (Hugging Face folders with the configurations of experts too, GGUF with K-quants,
Whisper's), ONNX models, pictures, sound, signatures and experiments: each is read, or refused with
an error of ours. Anything else ends it, and the file stays in FOLDER.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import shutil
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from satchel.errors import SatchelError

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

SLOWEST = 60.0  # seconds of one file, with sanitizers on a busy machine
ODD = [None, True, 0, -1, 1.5, float("nan"), 1 << 31, 1 << 63, 10**400, "", "\x1b[2J", "x" * 5000]
ODD += [[], [[]], {}, {"a": 1}, [None], "9" * 5000, "../..", "\0"]
EDGES = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1]
EXPERTS = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}

Use = Callable[[Path], object]


# --- damage ---


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, put in, left out; half of it near the beginning, where headers are."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        end = min(len(changed), 512) if rng.random() < 0.5 else len(changed)
        if not end:
            break
        at = rng.randrange(end)
        kind = rng.randrange(5)
        if kind == 0:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            number = struct.pack("<Q", rng.choice(EDGES))[: rng.choice([1, 2, 4, 8])]
            changed[at : at + len(number)] = number
        elif kind == 2:
            del changed[at : at + rng.randint(1, 64)]
        elif kind == 3:
            changed[at:at] = changed[at : at + rng.randint(1, 64)]
        else:
            del changed[rng.randrange(end) :]
    return bytes(changed)


def odd_document(text: str, rng: random.Random) -> str:
    """A JSON document with odd values in some places."""
    document = json.loads(text)
    for _ in range(rng.randint(1, 2)):
        holder, key = document, rng.choice(list(document))
        while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.8:
            holder = holder[key]
            key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        holder[key] = copy.deepcopy(rng.choice(ODD))
    return json.dumps(document)


# --- good files, and who reads them ---


def huggingface(folder: Path) -> tuple[list[Path], Use]:
    from satchel.exporter import ExportOptions, prepare_any_export
    from support.tiny_llm import write_tiny_llm

    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "vocab_size": 272}
    made = write_tiny_llm(folder / "tiny", **sizes)
    (made / "generation_config.json").write_text('{"temperature": 0.7, "eos_token_id": [2]}')
    experts = folder / "experts"
    shutil.copytree(made, experts)
    config = json.loads((made / "config.json").read_text())
    (experts / "config.json").write_text(json.dumps(config | EXPERTS))
    files = [path for place in (made, experts) for path in sorted(place.iterdir())]
    return files, lambda path: prepare_any_export(path.parent, ExportOptions()).plan()


def gguf(folder: Path) -> tuple[list[Path], Use]:
    from gguf import GGMLQuantizationType, GGUFWriter

    from satchel.checkpoints import open_checkpoint

    path = folder / "model.gguf"
    writer = GGUFWriter(path, "llama")
    for key, number in {"block_count": 1, "context_length": 64, "embedding_length": 256}.items():
        writer.add_uint32(f"llama.{key}", number)
    writer.add_uint32("llama.feed_forward_length", 256)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{n}" for n in range(64)])
    writer.add_token_merges(["t 1", "t 2"])
    writer.add_token_types([1] * 64)
    rng = np.random.default_rng(0)
    kinds = {"q4_k": 144, "q6_k": 210, "q2_k": 84}
    for number, (kind, size) in enumerate(kinds.items()):
        rows = rng.integers(0, 256, (64, size), dtype=np.uint8)
        name = ["token_embd.weight", "output.weight", "blk.0.ffn_up.weight"][number]
        writer.add_tensor(name, rows, raw_dtype=GGMLQuantizationType[kind.upper()])
    writer.add_tensor("output_norm.weight", np.ones(256, np.float32))
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file):
        write()
    writer.write_tensors_to_file()
    writer.close()

    def use(path: Path) -> None:
        with open_checkpoint(path) as opened:
            for name, info in opened.tensors.items():
                if info.shape and int(np.prod(info.shape, dtype=object)) < 1 << 20:
                    opened.read(name)

    return [path], use


def whisper(folder: Path) -> tuple[list[Path], Use]:
    from satchel.checkpoints import open_checkpoint

    path = folder / "model.bin"
    filters = np.zeros((80, 201), "<f4")
    parts = [struct.pack("<I11i", 0x67676D6C, 51865, 8, 8, 1, 1, 8, 8, 1, 1, 80, 0)]
    parts += [struct.pack("<2i", *filters.shape), filters.tobytes(), struct.pack("<i", 3)]
    parts += [struct.pack("<i", 1) + letter for letter in (b"a", b"b", b"c")]
    name = b"decoder.token_embedding.weight"
    parts += [struct.pack("<5i", 2, len(name), 0, 8, 4), name, bytes(4 * 8 * 4)]
    path.write_bytes(b"".join(parts))
    return [path], lambda path: open_checkpoint(path).close()


def onnx_model(folder: Path) -> tuple[list[Path], Use]:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from satchel.exporter.module_options import ModuleOptions
    from satchel.onnx.job import prepare_onnx_export

    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    to = numpy_helper.from_array(np.array([1, -1]), "to")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Reshape", ["z", "to"], ["out"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [out], [weight, to])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return [path], lambda path: prepare_onnx_export(path, ModuleOptions()).plan()


def pictures(folder: Path) -> tuple[list[Path], Use]:
    from PIL import Image

    from satchel.vision.images import open_image

    pixels = np.random.default_rng(0).integers(0, 256, (16, 20, 3), dtype=np.uint8)
    files = [folder / f"p{end}" for end in ".jpg .png .bmp .webp .gif .tiff .ppm".split()]
    for path in files:
        Image.fromarray(pixels).save(path)
    return files, lambda path: open_image(path, path.name).convert("RGB")


def sound(folder: Path) -> tuple[list[Path], Use]:
    import soundfile

    from satchel.speech.audio import open_sound

    wave = np.sin(np.arange(4000) * 0.1).astype(np.float32)
    files = [folder / f"s{end}" for end in (".wav", ".flac", ".ogg")]
    for path in files:
        soundfile.write(path, wave, 16000)
    return files, lambda path: sum(len(block) for block in open_sound(path).blocks())


def signature(folder: Path) -> tuple[list[Path], Use]:
    from satchel import signing
    from support.small_program import write_small_program

    program = write_small_program(folder / "small.satchel")
    signing.new_key(folder / "a.key")
    made = signing.sign(program, signing.read_private_key(folder / "a.key"))
    return [made], lambda path: signing.signer(path.with_suffix(""))


def experiment(folder: Path) -> tuple[list[Path], Use]:
    from satchel.sweeps.experiment import read_experiment
    from satchel.sweeps.matrix import cells_of

    path = folder / "experiment.yaml"
    whole = {"models": ["random:tiny-llama"], "recipes": ["fp32", "8da4w:64"], "threads": [1, 2]}
    whole |= {"prompts": [16, {"tokens": 8}], "runs": 2, "cool_down": {"seconds": 1.5}}
    path.write_text(json.dumps(whole | {"exclude": [{"threads": "2"}]}))  # JSON is YAML
    return [path], lambda path: cells_of(read_experiment(path))


KINDS = (huggingface, gguf, whisper, onnx_model, pictures, sound, signature, experiment)


# --- the run ---


class Seeds:
    """Good files of one kind, of which one is damaged at a time, in its place."""

    def __init__(self, make: Callable[[Path], tuple[list[Path], Use]], folder: Path) -> None:
        self.name = make.__name__
        place = folder / self.name
        place.mkdir(parents=True)
        files, self.use = make(place)
        self.whole = {path: path.read_bytes() for path in files}
        self.refused = 0
        for path in files:  # those of experts lack their tensors, and are refused for it
            self.attempt(path)
        self.tried = self.refused = 0

    def attempt(self, path: Path) -> float:
        begin = time.process_time()
        try:
            self.use(path)
        except (SatchelError, OSError):
            self.refused += 1
        return time.process_time() - begin

    def damage(self, rng: random.Random) -> float:
        path = rng.choice(list(self.whole))
        data = self.whole[path]
        is_document = path.suffix in (".json", ".yaml", ".sig")
        if is_document and rng.random() < 0.7:
            data = odd_document(data.decode(), rng).encode()
        else:
            data = damaged(data, rng)
        path.write_bytes(data)
        self.tried = getattr(self, "tried", 0) + 1
        took = self.attempt(path)
        if took > SLOWEST:
            raise TimeoutError(f"{took:.0f} s of processor time")
        path.write_bytes(self.whole[path])
        return took


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[make.__name__ for make in KINDS])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = random.Random(options.seed)
    chosen = [make for make in KINDS if options.only in (None, make.__name__)]
    seeds = [Seeds(make, options.folder) for make in chosen]
    slowest, end = 0.0, time.monotonic() + options.seconds
    while time.monotonic() < end:
        one = rng.choice(seeds)
        try:
            slowest = max(slowest, one.damage(rng))
        except Exception:
            traceback.print_exc()
            print(f"{one.name}: the file stays in {options.folder / one.name}", file=sys.stderr)
            return 1
    counts: dict[str, Any] = {one.name: one.tried for one in seeds}
    counts |= {"files": sum(counts.values()), "refused": sum(one.refused for one in seeds)}
    print(json.dumps(counts | {"slowest": round(slowest, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
