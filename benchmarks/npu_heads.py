"""Attention for an NPU head by head, or with all heads in one product: what compiling takes.

    python benchmarks/npu_heads.py smollm2-135m --layers 6
    python benchmarks/npu_heads.py qwen3-4b --layers 2

Random weights of the model's shapes, without its head.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from npu_compile import SMALL_VOCABULARY
from random_checkpoint import write_checkpoint
from shapes import SHAPES

import satchel
from satchel.backends.qnn import lower
from satchel.graph.ir import Node, Value, attr_float, attr_int
from satchel.runtime.program import Program

Lowering = lower._Lowering


def together(self: lower._Lowering, node: Node) -> Value:
    """All heads in two products, without soft caps.

    Keys and values have a dimension of 1 where queries have the heads that share them.
    """
    b, (q, keys, values) = self.b, node.inputs[:3]
    assert q and keys and values and keys.state and values.state
    q = self._input(q)
    tokens, heads, dim = q.shape
    k = b.concat(self.known[id(keys)], self.new[keys.state], axis=2)
    v = b.concat(self.known[id(values)], self.new[values.state], axis=1)
    shared, slots = k.shape[0], k.shape[2]
    q = b.transpose(b.affine(q, scale=attr_float(node.attrs, "scale")), perm=(1, 0, 2))
    q = b.reshape(q, shape=(shared, heads // shared, tokens, dim))
    scores = b.matmul(q, b.reshape(k, shape=(shared, 1, dim, slots)))
    scores = b.add(scores, self._mask(attr_int(node.attrs, "window", 0)))
    mixed = b.matmul(b.softmax(scores, axis=-1), b.reshape(v, shape=(shared, 1, slots, dim)))
    return b.node("transpose", b.reshape(mixed, shape=(heads, tokens, dim)), perm=(1, 0, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--target", default="qnn:SM8750")
    arguments = parser.parse_args()
    SHAPES[arguments.name] = {**SHAPES[arguments.name], "vocab_size": SMALL_VOCABULARY}
    usual = Lowering._attention
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_checkpoint(arguments.name, folder / "random", arguments.layers)
        for name, attention in (("head by head", usual), ("together", together)):
            Lowering._attention = attention
            options = {"target": arguments.target, "context": arguments.context}
            path = satchel.export(
                folder / "random", folder / "p.satchel", overwrite=True, num_sharding=1, **options
            )
            (shard,) = Program(path).metadata["npu"]["shards"]
            print(
                f"{name:<12} {shard['processor_seconds']:6.1f} s of processor time, "
                f"{shard['binary_bytes'] / 1e6:6.1f} MB of binary, peak memory "
                f"{shard['peak_memory_bytes'] / 1e6:.0f} MB, agreement {shard['agreement']:.5f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
