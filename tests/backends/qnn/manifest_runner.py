"""A runner that knows nothing of Satchel's NPU backend but docs/qnn.md: the manifest, the vendor's
sessions, and the program's own CPU methods.

    python manifest_runner.py PROGRAM KIT TOKEN... prints the logits of the last token as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import onnxruntime_qnn

from satchel.runtime.program import Instance, Program

path, kit, *tokens = sys.argv[1:]
manifest = json.loads((Path(kit) / "manifest.json").read_text())
(method,) = manifest["methods"]

ort.register_execution_provider_library("QNN", onnxruntime_qnn.get_library_path())
devices = [d for d in ort.get_ep_devices() if "QNN" in d.ep_name][:1]
sessions = []
for shard in method["shards"]:
    options = ort.SessionOptions()
    backend = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "htp_arch": "69"}
    options.add_provider_for_devices(devices, backend)
    sessions.append(ort.InferenceSession(str(Path(kit) / shard["model"]), options))

tensors = {t["name"]: t for s in method["shards"] for t in (*s["inputs"], *s["outputs"])}
caches = {}
for cache in method["caches"]:
    one = tensors[cache["name"]]
    caches[cache["name"]] = np.full(one["shape"], one["zero_point"], one["dtype"])
before = Instance(Program(path)).method(method["before"])


def quantize(name: str, numbers: np.ndarray) -> np.ndarray:
    one = tensors[name]
    codes = np.rint(numbers * (np.float32(1) / np.float32(one["scale"]))) + one["zero_point"]
    return np.clip(codes, 0, np.iinfo(one["dtype"]).max).astype(one["dtype"])


for position, token in enumerate(map(int, tokens)):
    made = before.run(tokens=[token], position=[position])
    codes = {name: quantize(name, a) for name, a in zip(before.outputs, made, strict=True)}
    for mask in method["masks"]:
        hidden = np.zeros(tensors[mask["name"]]["shape"], tensors[mask["name"]]["dtype"])
        hidden[:, :position] = hidden[:, method["context"] :] = tensors[mask["name"]]["zero_point"]
        codes[mask["name"]] = hidden
    codes |= caches
    for shard, session in zip(method["shards"], sessions, strict=True):
        names = [t["name"] for t in shard["outputs"]]
        results = session.run(names, {t["name"]: codes[t["name"]] for t in shard["inputs"]})
        codes |= dict(zip(names, results, strict=True))
    for cache in method["caches"]:
        at = [slice(None)] * 3
        at[cache["axis"]] = slice(position, position + 1)
        caches[cache["name"]][tuple(at)] = codes[cache["new"]]
one = tensors["logits"]
numbers = (codes["logits"].astype(np.int32) - one["zero_point"]) * np.float32(one["scale"])
print(json.dumps(numbers[0].tolist()))
