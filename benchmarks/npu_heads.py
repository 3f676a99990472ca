"""Attention for an NPU with all heads in one product, or head by head: what compiling takes.

    python benchmarks/npu_heads.py smollm2-135m --layers 6
    python benchmarks/npu_heads.py qwen3-4b --layers 2

Random weights of the model's shapes, without its head.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

from npu_compile import SMALL_VOCABULARY

import satchel
from satchel.backends.qnn.lowering import attention, state
from satchel.graph.ir import Node, Value, attr_float, attr_int
from satchel.runtime.program import Program
from satchel.sources.random_weights import write_checkpoint
from satchel.sources.shapes import SHAPES


def head_by_head(to: state.Lowering, node: Node) -> Value:
    """The same as ``_cached_attention``, without soft caps."""
    b, (q, keys, values) = to.b, node.inputs[:3]
    assert q and keys and values and keys.state and values.state
    q = b.affine(to.input(q), scale=attr_float(node.attrs, "scale"))
    tokens, heads, dim = q.shape
    q = b.reshape(q, shape=(1, tokens, heads * dim))
    k = b.concat(to.known[id(keys)], to.new[keys.state], axis=2)
    v = b.concat(to.known[id(values)], to.new[values.state], axis=1)
    mask = attention._mask(to, attr_int(node.attrs, "window", 0))
    made = []
    for head in range(heads):
        at = head * k.shape[0] // heads
        own = {"axis": 0, "start": at, "stop": at + 1}
        query = b.slice(q, axis=2, start=head * dim, stop=(head + 1) * dim)
        weights = b.softmax(b.add(b.matmul(query, b.slice(k, **own)), mask), axis=-1)
        made.append(b.matmul(weights, b.slice(v, **own)))
    while len(made) > 1:  # a concat takes eight
        parts = [made[i : i + 8] for i in range(0, len(made), 8)]
        made = [b.concat(*part, axis=2) if len(part) > 1 else part[0] for part in parts]
    return b.node("reshape", made[0], shape=(tokens, heads, dim))


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(SHAPES))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--target", default="qnn:SM8750")
    arguments = parser.parse_args()
    SHAPES[arguments.name] = {**SHAPES[arguments.name], "vocab_size": SMALL_VOCABULARY}
    usual = state.NODE_LOWERINGS["attention"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_checkpoint(arguments.name, folder / "random", arguments.layers)
        for name, lowering in (("together", usual), ("head by head", head_by_head)):
            state.NODE_LOWERINGS["attention"] = lowering
            before = children_seconds()
            options = {
                "target": satchel.find_target(arguments.target, num_sharding=1),
                "context": arguments.context,
            }
            path = satchel.export(
                folder / "random", folder / "p.satchel", overwrite=True, **options
            )
            checked = children_seconds() - before
            (shard,) = Program(path).metadata["payloads"][arguments.target]["shards"]
            print(
                f"{name:<12} {shard['processor_seconds']:6.1f} s of processor time, "
                f"{checked:6.1f} s with running a token, "
                f"{shard['binary_bytes'] / 1e6:6.1f} MB of binary, peak memory "
                f"{shard['peak_memory_bytes'] / 1e6:.0f} MB, agreement {shard['agreement']:.5f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
