"""satchel inspect: what is in a program file."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from satchel.cli.output import count, emit, print_json, table
from satchel.units import megabytes

HELP = "show what a program holds, without reading its weights"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program")
    parser.add_argument("--weights", action="store_true", help="list every weight")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="open it there, and show what runs where: a target of the file, or one that runs all",
    )


def execute(arguments: argparse.Namespace) -> None:
    from satchel.runtime.program import Program

    program = Program(arguments.file, target=arguments.target)
    document = describe(program)
    if arguments.target:
        document["placement"] = _placement_now(program) or document["placement"]
    if arguments.json:
        print_json(document)
        return
    _print(document, arguments.file)
    if arguments.weights:
        rows = [
            [w["name"], w["encoding"], "x".join(map(str, w["shape"])), megabytes(w["bytes"])]
            for w in document["weights"]
        ]
        emit()
        emit(table(rows, ["weight", "encoding", "shape", "size"]))


def describe(program: Any) -> dict[str, Any]:
    """Everything but the weights' data and the tokenizer's vocabulary."""
    metadata = program.metadata
    return {
        "file_size_bytes": program.size,
        "checksum": program.checksum,
        "recipe": metadata.get("recipe"),
        "placement": metadata.get("placement"),
        "weight_error": metadata.get("weight_error"),
        "methods": [_readable(m) for m in program.methods],
        "states": program.states,
        "sections": [{**s, "digest": s["digest"].hex()} for s in program.sections],
        "weights": [
            {
                "name": w["name"],
                "encoding": w["encoding"],
                "group": w["group"],
                "shape": w["shape"],
                "bytes": w["codes_size"] + w["scales_size"],
                "digest": w["digest"].hex(),
            }
            for w in program.weights
        ],
        "metadata": metadata,
    }


def _placement_now(program: Any) -> dict[str, Any] | None:
    """What the executors of an instance take; None where there is none but the CPU's."""
    instance = program.instance()
    nodes: Counter[str] = Counter()
    for part in instance.parts:
        nodes[part.executor] += part.last - part.first
    if set(nodes) <= {"cpu"} and not instance.refusals:
        return None
    fallbacks = [{"op": r.op, "nodes": r.nodes, "reason": r.reason} for r in instance.refusals]
    return {"nodes": dict(nodes), "fallbacks": fallbacks}


def _readable(method: dict[str, Any]) -> dict[str, Any]:
    """A symbolic dimension (name, maximum) becomes the text "name<=maximum"."""

    def shape(value: dict[str, Any]) -> dict[str, Any]:
        dims = [f"{d[0]}<={d[1]}" if isinstance(d, tuple) else d for d in value["shape"]]
        return {**value, "shape": dims}

    return {
        **method,
        "inputs": [shape(v) for v in method["inputs"]],
        "outputs": [shape(v) for v in method["outputs"]],
    }


def _print(document: dict[str, Any], path: str) -> None:
    meta = document["metadata"]
    emit(f"{path}  {megabytes(document['file_size_bytes'])}")
    emit(
        f"model      {meta.get('name')}, {meta.get('architecture')}, "
        f"{count(meta.get('parameters') or 0)} parameters"
    )
    recipe = document["recipe"] or {}
    emit(f"recipe     {recipe.get('description', 'none')}")
    facts = [", ".join(meta.get("targets") or [str(meta.get("target"))])]
    if size := meta.get("context"):  # of what reads or writes text
        facts.append(f"context {size} tokens")
    if mode := meta.get("mode"):
        facts.append(f"mode {mode}")
    emit(f"target     {'; '.join(facts)}")
    placement = document["placement"] or {}
    placed = ", ".join(
        f"{n} nodes on {where}" for where, n in (placement.get("nodes") or {}).items()
    )
    emit(f"placement  {placed}; {len(placement.get('fallbacks') or [])} fallbacks")
    for fall in placement.get("fallbacks") or []:
        emit(f"           {fall['nodes']} {fall['op']} on the CPU: {fall['reason']}")
    for method in document["methods"]:
        ins = ", ".join(_typed(v) for v in method["inputs"])
        outs = ", ".join(_typed(v) for v in method["outputs"])
        emit(f"method     {method['name']}({ins}) -> {outs}")
        emit(
            f"           {method['nodes']} nodes, arena {megabytes(method['arena_bytes'])}, "
            f"reads {megabytes(method['weight_bytes_read'])} of weights a call"
        )
    states = sum(s["bytes"] for s in document["states"])
    emit(f"KV cache   {megabytes(states)} in {len(document['states'])} states")
    kinds: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for w in document["weights"]:
        kinds[w["encoding"]] += 1
        sizes[w["encoding"]] += w["bytes"]
    for kind, size in sizes.most_common():
        emit(f"weights    {kinds[kind]} as {kind}, {megabytes(size)}")
    errors = sorted((document["weight_error"] or {}).items(), key=lambda item: -item[1])
    for name, error in errors:
        if error > 0:
            emit(f"error      {error:.4f}  {name}")
    emit(f"checksum   {document['checksum']}")


def _typed(value: dict[str, Any]) -> str:
    return f"{value['name']}: {value['dtype']}[{', '.join(map(str, value['shape']))}]"
